"""Which job a program belongs to, so that the launchers of several hosts can share a folder.

job_id(["torchrun", "--rdzv-id=night", "train.py"], os.environ)        # "torchrun-night"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .folder import ENV_RUN


def job_id(command: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return what names the job alike on each of its hosts; None where nothing does.

    In this order: the run's id that the user or another launcher gave; torchrun's rendezvous id;
    Slurm's job and step; the address on which rank 0 listens.

    Args:
        command: What is to be run.
        environ: Environment variables.

    Example:
        >>> job_id(["torchrun", "--master-addr", "a", "--master_port=1", "x.py"], {})
        'a:1'
    """
    if given := environ.get(ENV_RUN):
        return given
    rendezvous = _option(command, "rdzv-id") or environ.get("PET_RDZV_ID")
    if rendezvous and rendezvous != "none":
        return f"torchrun-{rendezvous}"
    if "SLURM_JOB_ID" in environ and "SLURM_PROCID" in environ:
        step = environ.get("SLURM_STEP_ID", "0")
        restart = environ.get("SLURM_RESTART_COUNT", "0")
        return f"slurm-{environ['SLURM_JOB_ID']}.{step}.{restart}"
    address = _option(command, "master-addr") or environ.get("MASTER_ADDR")
    port = _option(command, "master-port") or environ.get("MASTER_PORT")
    if address and port:
        return f"{address}:{port}"
    endpoint = _option(command, "rdzv-endpoint") or environ.get("PET_RDZV_ENDPOINT")
    return None if endpoint is None or endpoint.endswith(":0") else endpoint  # 0: any free port


def _option(command: Sequence[str], name: str) -> str | None:
    """Return the value of an option as torchrun takes it: `--a-b x`, `--a_b x` or `--a-b=x`."""
    for place, word in enumerate(command):
        key, is_joined, value = word.partition("=")
        if key.startswith("--") and key[2:].replace("_", "-") == name:
            if is_joined:
                return value
            return command[place + 1] if place + 1 < len(command) else None
    return None
