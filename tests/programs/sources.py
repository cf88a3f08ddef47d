"""Work trees of other people's repositories, at the commits of the list.

A repository is taken from a folder of clones if ``FACULA_PROGRAMS`` names one: ``owner+name`` in it is a
clone, or holds one (bare or not) as ``repo``. Otherwise it is cloned from GitHub into ``.clones``. Objects
that a clone lacks, as do clones made without large files, are left out of the tree.
"""

import os
import subprocess
from pathlib import Path

CLONES = Path(__file__).resolve().parents[2] / ".clones"
LARGEST = 8 << 20  # bytes of a file; larger ones are recordings and pictures that no listed program reads


def git(directory, *arguments, **options):
    return subprocess.run(
        ["git", "--git-dir", directory, *arguments], check=True, capture_output=True, **options
    ).stdout


def git_directory(repository, clones):
    """The git directory of a repository ``owner/name``, which is cloned if it is not there."""
    name = repository.replace("/", "+")
    shared = os.environ.get("FACULA_PROGRAMS")
    for folder in [*map(Path, [shared] if shared else []), clones]:
        for place in (
            folder / name / ".git",
            folder / name / "repo" / ".git",
            folder / name / "repo",
            folder / name,
        ):
            if (place / "HEAD").exists() and (place / "objects").is_dir():
                return place
    if shared:
        raise FileNotFoundError(f"{repository} is not among the clones in {shared}")
    place = clones / name
    address = f"https://github.com/{repository}"
    subprocess.run(["git", "clone", "-q", "--bare", address, str(place)], check=True, timeout=600)
    return place


def files(directory, commit, under):
    """Path, mode and object of each file of a commit, below the paths of ``under``."""
    listing = git(directory, "ls-tree", "-r", "-z", "--full-tree", commit, *under).decode()
    for entry in filter(None, listing.split("\0")):
        description, path = entry.split("\t", 1)
        mode, kind, name = description.split()
        if kind == "blob" and mode != "120000":
            yield path, mode, name


def write_tree(directory, commit, target, under=()):
    """Writes the files of a commit into the folder ``target``."""
    listed = list(files(directory, commit, under))
    names = "".join(f"{name}\n" for _, _, name in listed)
    sizes = git(directory, "cat-file", "--batch-check", input=names.encode()).decode().splitlines()
    there = [
        entry
        for entry, line in zip(listed, sizes)
        if not line.endswith(" missing") and int(line.split()[2]) <= LARGEST
    ]
    names = "".join(f"{name}\n" for _, _, name in there)
    data, at = git(directory, "cat-file", "--batch", input=names.encode()), 0
    for path, mode, _ in there:
        end = data.index(b"\n", at)
        size = int(data[at:end].split()[2])
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data[end + 1 : end + 1 + size])
        if mode == "100755":
            file.chmod(0o755)
        at = end + 1 + size + 1
