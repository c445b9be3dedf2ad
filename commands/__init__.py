"""The commands of `chunkscope`, by what they are for."""
