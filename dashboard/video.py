"""Films as GIF and MP4: frames by skia go to ffmpeg through a pipe, none by way of the disk."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import ChunkscopeError, MissingExtra
from .film import Film
from .paint.skia import Canvas

Progress = Callable[[int, int], None]
# Moments that a GIF's palette is made of.
PALETTE_FRAMES = 24


def ffmpeg() -> str:
    """Return the path of ffmpeg.

    Raises:
        MissingExtra: imageio-ffmpeg is not installed.
    """
    try:
        import imageio_ffmpeg
    except ImportError:
        raise MissingExtra("GIF and MP4", "export", "imageio-ffmpeg") from None
    return str(imageio_ffmpeg.get_ffmpeg_exe())


def moments(film: Film, fps: int, seconds: float | None) -> list[float]:
    """Return the film time of each frame.

    Args:
        film: The film.
        fps: Frames a second.
        seconds: How long the steps take together; the holds keep their length.
    """
    start = film.steps[0].start_s if film.steps else 0.0
    end = film.steps[-1].end_s if film.steps else film.duration_s
    if end <= start:
        start, end = 0.0, film.duration_s
    pace = (end - start) / seconds if seconds else 1.0
    length = film.duration_s - (end - start) + (end - start) / pace
    out = []
    for k in range(max(round(length * fps), 1)):
        t = k / fps
        over = t - start
        if over > 0:
            t = start + min(over * pace, end - start) + max(over - (end - start) / pace, 0.0)
        out.append(t)
    return out


def frames(
    canvas: Canvas, times: Iterable[float], total: int, progress: Progress | None
) -> Iterator[bytes]:
    """Yield each frame as RGBA bytes."""
    for k, t in enumerate(times):
        yield canvas.frame(t).tobytes()
        if progress is not None:
            progress(k + 1, total)


def mp4(
    film: Film,
    path: Path,
    *,
    theme: str,
    size: tuple[int, int],
    fps: int,
    seconds: float | None,
    progress: Progress | None = None,
) -> None:
    """Write a film as an MP4 that every player knows (H.264, yuv420p)."""
    size = size[0] + size[0] % 2, size[1] + size[1] % 2
    times = moments(film, fps, seconds)
    canvas = Canvas(film, theme=theme, size=size)
    encoder = ["-an", "-c:v", "libx264", "-preset", "veryfast", "-tune", "animation", "-crf", "18",
               "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-threads", "2"]  # fmt: skip
    _encode(frames(canvas, times, len(times), progress), size, fps, [], encoder, path)


def gif(
    film: Film,
    path: Path,
    *,
    theme: str,
    size: tuple[int, int],
    fps: int,
    seconds: float | None,
    progress: Progress | None = None,
) -> None:
    """Write a film as a GIF that loops; its flat colours fit one palette, without dithering."""
    times = moments(film, fps, seconds)
    canvas = Canvas(film, theme=theme, size=size)
    with tempfile.TemporaryDirectory(prefix="chunkscope-") as folder:
        palette = Path(folder) / "palette.png"
        some = times[:: max(len(times) // PALETTE_FRAMES, 1)]
        make = ["-vf", "palettegen=stats_mode=full:reserve_transparent=0", "-frames:v", "1"]
        _encode(frames(canvas, some, len(some), None), size, fps, [], make, palette)
        use = ["-lavfi", "paletteuse=dither=none:diff_mode=rectangle", "-loop", "0"]
        moving = frames(canvas, times, len(times), progress)
        _encode(moving, size, fps, ["-i", str(palette)], use, path)


def _encode(
    pictures: Iterable[bytes],
    size: tuple[int, int],
    fps: int,
    inputs: list[str],
    output: list[str],
    path: Path,
) -> None:
    """Send raw frames through ffmpeg into a file."""
    command = [
        ffmpeg(), "-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-f", "rawvideo",
        "-pix_fmt", "rgba", "-s", f"{size[0]}x{size[1]}", "-r", str(fps), "-i", "-", *inputs,
        *output, "-fflags", "+bitexact", str(path),
    ]  # fmt: skip
    with tempfile.TemporaryFile() as log:
        # The encoder's own words go to a file: a full pipe would stop it.
        process: Any = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log)
        try:
            for picture in pictures:
                process.stdin.write(picture)
            process.stdin.close()
            code = process.wait(timeout=600)
        except BrokenPipeError:
            code = process.wait(timeout=60)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            with suppress(OSError):
                process.stdin.close()
        if code != 0:
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()
            raise ChunkscopeError(f"ffmpeg could not write {path.name}: {' '.join(said[-2:])}")
