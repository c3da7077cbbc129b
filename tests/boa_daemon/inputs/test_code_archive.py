"""A code archive leaves ignored files out, is reproducible, and has no links to the outside."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs import code_archive
from boa_daemon.inputs.code_archive import CodeArchive, pack
from boa_daemon.inputs.submission import read_submission


def git(folder: Path, *words: str) -> None:
    options = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *options, *words], cwd=folder, check=True, capture_output=True)


def a_folder(top: Path) -> Path:
    """Return a folder with a script, a link, and ignored files at two depths."""
    folder = top / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / "train.py").write_text("print('one')\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "sub" / "data.bin").write_bytes(b"x" * 1000)
    (folder / "sub" / "model.py").write_text("")
    (folder / "sub" / ".gitignore").write_text("*.bin\n")
    (folder / ".gitignore").write_text("out/\n*.log\n!keep.log\n")
    (folder / "out").mkdir()
    (folder / "out" / "big").write_text("big")
    (folder / "a.log").write_text("")
    (folder / "keep.log").write_text("")
    (folder / "link.py").symlink_to("train.py")
    return folder


EXPECTED = {".gitignore", "keep.log", "link.py", "run.sh", "sub/.gitignore", "sub/model.py", "train.py"}


def files(packed: CodeArchive) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(packed.archive), mode="r:gz") as archive:
        return {member.name: member for member in archive}


@pytest.mark.parametrize("is_repository", [True, False])
def test_ignored_files_are_left_out(tmp_path: Path, is_repository: bool) -> None:
    """In a repository and in a plain folder; the folder itself is not changed."""
    folder = a_folder(tmp_path)
    if is_repository:
        git(folder, "init")
        git(folder, "add", "train.py", "run.sh")
    before = sorted(folder.rglob("*"))
    found = files(pack(folder))

    assert found.keys() == EXPECTED
    assert (found["run.sh"].mode, found["train.py"].mode, found["link.py"].linkname) == (
        0o755,
        0o644,
        "train.py",
    )
    assert {(one.uid, one.gid, one.mtime, one.uname) for one in found.values()} == {(0, 0, 0, "")}
    assert sorted(folder.rglob("*")) == before


def test_the_same_files_have_the_same_digest(tmp_path: Path) -> None:
    """Times and locations of files do not matter; their content does."""
    first, second = a_folder(tmp_path / "a"), a_folder(tmp_path / "b")
    for file in second.rglob("*"):
        os.utime(file, (1.0, 1.0), follow_symlinks=False)
    assert pack(first) == pack(second)
    (second / "train.py").write_text("print('two')\n")
    assert pack(first).digest != pack(second).digest


def test_a_revision_packs_the_committed_files_of_the_folder(tmp_path: Path) -> None:
    """Changes in the work tree do not matter, and two commits with the same files give the same archive."""
    folder = a_folder(tmp_path)
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "one")
    git(folder, "tag", "v1")
    (folder / "train.py").write_text("print('two')\n")
    (folder / "new.py").write_text("")
    assert files(pack(folder, "v1")).keys() == EXPECTED
    assert pack(folder, "v1").digest != pack(folder).digest
    git(folder, "commit", "--allow-empty", "-m", "two")
    assert pack(folder, "HEAD") == pack(folder, "v1")
    assert files(pack(folder / "sub", "v1")).keys() == {".gitignore", "model.py"}
    git(folder, "stash")
    (folder / "new.py").unlink()
    assert pack(folder, "v1").digest == pack(folder).digest


def test_a_folder_that_cannot_be_packed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Causes: no folder, no such revision, a link to the outside, an inner repository, too many bytes."""
    folder = a_folder(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        pack(tmp_path / "none")
    with pytest.raises(InputError, match="there is no revision 'v9'"):
        pack(folder, "v9")
    git(folder, "init")
    with pytest.raises(InputError, match="there is no revision '--help'"):
        pack(folder, "--help")
    for target in ("/etc/passwd", "../../secret"):
        link = folder / "bad"
        link.symlink_to(target)
        with pytest.raises(InputError, match="bad is a link to"):
            pack(folder)
        link.unlink()
    (folder / "inner").mkdir()
    git(folder / "inner", "init")
    (folder / "inner" / "x").write_text("")
    with pytest.raises(InputError, match="inner/ is a repository of its own"):
        pack(folder)
    (folder / ".gitignore").write_text("inner\n")
    monkeypatch.setattr(code_archive, "MOST_BYTES", 100)
    with pytest.raises(InputError, match=r"Leave data and results out by \.gitignore"):
        pack(folder)


def test_packing_without_git_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git decides which files are ignored."""
    folder = a_folder(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="Install git"):
        pack(folder)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("code: none", "job.yaml:4: code: '.*none' is not a folder"),
        ("code: {folder: ., revision: v9}", "job.yaml:4: code: there is no revision 'v9'"),
        ("code: .\nworkdir: nowhere", "job.yaml:5: workdir 'nowhere' is not a folder of the code"),
        ("code: .\nworkdir: ../..", "job.yaml:5: workdir must be within the code"),
        ("code: .\nworkdir: /", "job.yaml:5: workdir must be within the code"),
        ("code: {foldr: .}", "unknown key 'foldr' in code. Did you mean 'folder'"),
        ("image: 'Not an image'", "image must be"),
        ("artifacts: [/etc/passwd]", "artifacts must be below workdir; got '/etc/passwd'"),
        ("artifacts: [a/../../b]", "artifacts must be below workdir"),
        ("cpus: 0", "cpus must be more than zero"),
    ],
)
def test_errors_in_code_and_image_are_found_before_submission(tmp_path: Path, job: str, said: str) -> None:
    """The error gives the line of the job file."""
    file = a_folder(tmp_path) / "job.yaml"
    file.write_text(f"name: a\nclass: default\nrun: 'true'\n{job}\n")
    with pytest.raises(InputError, match=said):
        read_submission(file)


@pytest.mark.parametrize(
    "image",
    [
        "python:3.12", "ghcr.io/org/train/image:v1.2-3_x", "localhost:5000/a/b", "ubuntu", "docker://nvcr.io/x:1",
        "a@sha256:" + "0" * 64, "/images/train.sif", "a__b/c--d:T",
    ],
)  # fmt: skip
def test_valid_image_references_are_accepted(tmp_path: Path, image: str) -> None:
    """The forms that registries use, and a file."""
    file = tmp_path / "job.yaml"
    file.write_text(f"name: a\nclass: default\nrun: 'true'\nimage: '{image}'\n")
    assert read_submission(file)[0]["image"] == image


def names_in(packed: CodeArchive) -> set[str]:
    return set(files(packed))


def a_repository(top: Path) -> Path:
    """Return a repository with export rules, a file that a filter changes and a submodule, all committed."""
    library = top / "library"
    library.mkdir()
    (library / "lib.py").write_text("x = 1\n")
    git(library, "init")
    git(library, "add", "-A")
    git(library, "commit", "-m", "one")
    folder = top / "project"
    (folder / "tests").mkdir(parents=True)
    (folder / "tests" / "data.json").write_text("{}")
    (folder / "train.py").write_text("$Format:%H$\n")
    (folder / ".gitattributes").write_text("tests export-ignore\ntrain.py export-subst\n*.sh text eol=crlf\n")
    (folder / "run.sh").write_text("echo\n")
    git(folder, "init")
    git(folder, "-c", "protocol.file.allow=always", "submodule", "add", str(library), "third/library")
    git(folder, "add", "-A")
    git(folder, "commit", "-m", "one")
    return folder


COMMITTED = {".gitattributes", ".gitmodules", "run.sh", "tests/data.json", "third/library/lib.py", "train.py"}


@pytest.mark.parametrize("revision", ["HEAD", None])
def test_every_committed_file_is_packed(tmp_path: Path, revision: str | None) -> None:
    """Export rules leave nothing out and change nothing; submodules are there."""
    packed = pack(a_repository(tmp_path), revision)
    with tarfile.open(fileobj=io.BytesIO(packed.archive), mode="r:gz") as archive:
        train = archive.extractfile("train.py")
        assert train is not None
        assert train.read() == b"$Format:%H$\n"

    assert names_in(packed) - {"third/library/.git"} == COMMITTED


def test_a_part_of_a_repository_is_packed_at_a_revision(tmp_path: Path) -> None:
    """The folder below the top is the root of the archive."""
    folder = a_repository(tmp_path)

    assert names_in(pack(folder / "tests", "HEAD")) == {"data.json"}
    assert names_in(pack(folder / "third", "HEAD")) == {"library/lib.py"}


@pytest.mark.parametrize("revision", ["HEAD", None])
def test_a_submodule_that_is_not_there_is_refused_by_name(tmp_path: Path, revision: str | None) -> None:
    """An empty folder in its place would fail on the node."""
    folder = a_repository(tmp_path)
    git(folder, "submodule", "deinit", "--force", "--all")

    with pytest.raises(InputError, match=r"submodule third/library.*(not there|not checked out)"):
        pack(folder, revision)


def test_a_work_tree_and_a_shallow_clone_are_packed(tmp_path: Path) -> None:
    """Other ways to have a repository."""
    folder = a_repository(tmp_path)
    git(folder, "worktree", "add", str(tmp_path / "tree"))
    git(folder, "clone", "--depth=1", f"file://{folder}", str(tmp_path / "clone"))
    (tmp_path / "tree" / "new.py").write_text("")

    with pytest.raises(InputError, match="git submodule update"):
        pack(tmp_path / "tree")
    git(tmp_path / "tree", "rm", "-f", "third/library")
    assert "new.py" in names_in(pack(tmp_path / "tree"))
    git(tmp_path / "clone", "rm", "-f", "third/library")
    assert "train.py" in names_in(pack(tmp_path / "clone"))


@pytest.mark.parametrize("way", ["absolute", "relative", "through a link"])
def test_a_link_that_stays_inside_is_packed_as_a_relative_one(tmp_path: Path, way: str) -> None:
    """On a node the folder has another path."""
    folder = a_folder(tmp_path)
    if way == "through a link":
        (tmp_path / "alias").symlink_to(folder)
    target = {
        "absolute": folder / "train.py",
        "relative": Path("../train.py"),
        "through a link": tmp_path / "alias" / "train.py",
    }[way]
    (folder / "sub" / "inside").symlink_to(target)

    assert files(pack(folder))["sub/inside"].linkname == "../train.py"


def test_two_names_of_one_file_are_two_files(tmp_path: Path) -> None:
    """An archive would hold the second as a link, which a node refuses."""
    folder = a_folder(tmp_path)
    (folder / "second.py").hardlink_to(folder / "train.py")

    assert files(pack(folder))["second.py"].isreg()


@pytest.mark.parametrize(
    ("ignored", "code", "workdir", "said"),
    [
        ("build/", "build", ".", r"git ignores all of .*build \(.*\.gitignore, line 1: build/\)"),
        (
            "build/",
            ".",
            "build",
            r"workdir 'build' is not a folder of the code: git ignores it \(.*line 1: build/",
        ),
        ("*.py", ".", "build/sub", r"workdir 'build/sub' is not a folder of the code"),
    ],
)
def test_what_git_ignores_is_refused_with_its_rule(
    tmp_path: Path, ignored: str, code: str, workdir: str, said: str
) -> None:
    """The file, the line and the pattern."""
    (tmp_path / "build" / "sub").mkdir(parents=True)
    (tmp_path / "build" / "train.py").write_text("")
    (tmp_path / "build" / "kept").write_text("")
    (tmp_path / ".gitignore").write_text(f"{ignored}\n")
    git(tmp_path, "init")
    job = tmp_path / "job.yaml"
    job.write_text(f"name: a\nclass: c\nrun: python train.py\ncode: {code}\nworkdir: {workdir}\n")

    with pytest.raises(InputError, match=said):
        read_submission(job)


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("{folder: ., revision: HEAD}", "The code is that of the revision HEAD"),
        (".", "It is empty, or git ignores all that is in it"),
    ],
)
def test_a_working_folder_that_is_not_packed_is_not_called_empty(
    tmp_path: Path, code: str, hint: str
) -> None:
    """It may be younger than the revision, or hold only what its own rules ignore."""
    (tmp_path / "train.py").write_text("")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "train.py").write_text("")
    (tmp_path / "later" / ".gitignore").write_text("*\n")
    job = tmp_path / "job.yaml"
    job.write_text(f"name: a\nclass: c\nrun: python train.py\ncode: {code}\nworkdir: later\n")

    with pytest.raises(InputError) as refused:
        read_submission(job)
    assert refused.value.hint.startswith(hint)


def test_too_much_code_is_refused_at_once_with_its_largest_files(tmp_path: Path) -> None:
    """Before a byte is read: the file here has a terabyte of nothing in it."""
    folder = a_folder(tmp_path)
    with (folder / "model.bin").open("wb") as file:
        file.truncate(2**40)

    with pytest.raises(InputError, match=r"1048576 MiB, and may be 1200; its largest files: model\.bin"):
        pack(folder)


def test_packing_tells_how_far_it_is(tmp_path: Path) -> None:
    """Bytes done, of all."""
    told: list[tuple[int, int]] = []
    pack(a_folder(tmp_path), progress=lambda done, total: told.append((done, total)))

    assert told[-1][0] == told[-1][1] > 0
    assert told == sorted(told)


def committed(folder: Path) -> None:
    git(folder, "init")
    git(folder, "add", "-A")
    git(folder, "commit", "-m", "one")


BROKEN = {
    "another owner": lambda folder: [os.lchown(path, 12345, 12345) for path in (folder, folder / ".git")],
    "settings": lambda folder: (folder / ".git" / "config").write_text("[bad"),
    "no HEAD": lambda folder: (folder / ".git" / "HEAD").unlink(),
    "a work tree without its repository": lambda folder: (
        (folder / ".git").rename(folder.parent / "gone"),
        (folder / ".git").write_text("gitdir: /nowhere\n"),
    ),
}


@pytest.mark.parametrize("where", [".", "sub"])
@pytest.mark.parametrize("revision", [None, "HEAD"])
@pytest.mark.parametrize("how", BROKEN)
def test_a_repository_that_git_does_not_read_is_refused(
    tmp_path: Path, how: str, revision: str | None, where: str
) -> None:
    """Its rules would not be kept: what it ignores, such as passwords, would be packed."""
    if how == "another owner" and os.getuid() != 0:
        pytest.skip("only root gives a file away")
    folder = a_folder(tmp_path)
    (folder / ".gitignore").write_text(".env\n")
    (folder / "sub" / ".env").write_text("PASSWORD=1")
    committed(folder)
    BROKEN[how](folder)

    with pytest.raises(InputError, match="git cannot read the repository in"):
        pack(folder / where, revision)


def test_a_revision_is_packed_as_it_was_committed(tmp_path: Path) -> None:
    """A person's settings for another system change neither line ends nor links."""
    folder = a_folder(tmp_path)
    (folder / ".gitattributes").write_text("*.py text\n")
    committed(folder)
    before = pack(folder, "HEAD")
    for name, value in (("autocrlf", "true"), ("eol", "crlf"), ("symlinks", "false")):
        git(folder, "config", f"core.{name}", value)

    assert pack(folder, "HEAD").digest == before.digest
    git(folder, "config", "core.autocrlf", "false")
    assert pack(folder, "HEAD").digest == before.digest


def test_a_file_that_became_a_folder_or_a_link_is_packed_as_it_is(tmp_path: Path) -> None:
    """Git still lists what was committed."""
    folder = tmp_path / "project"
    for name in ("was-file", "was-folder/x", "was-linked/x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    committed(folder)
    (folder / "was-file").unlink()
    (folder / "was-file").mkdir()
    (folder / "was-file" / "y").write_text("y")
    (folder / "was-folder" / "x").unlink()
    (folder / "was-folder").rmdir()
    (folder / "was-folder").write_text("now a file")
    (folder / "was-linked").rename(folder / "there")
    (folder / "was-linked").symlink_to("there")

    found = files(pack(folder))
    assert set(found) == {"was-file/y", "was-folder", "was-linked", "there/x"}
    assert found["was-linked"].issym()


@pytest.mark.parametrize("revision", [None, "HEAD"])
def test_a_link_that_leaves_the_folder_and_comes_back_works_on_a_node(
    tmp_path: Path, revision: str | None
) -> None:
    """There the folder has another name, and stands below others."""
    folder = a_folder(tmp_path)
    (folder / "sub" / "around").symlink_to("../../project/train.py")
    (folder / "sub" / "far").symlink_to(f"../../../{tmp_path.name}/project/sub/model.py")
    committed(folder)

    found = files(pack(folder, revision))
    assert found["sub/around"].linkname == "../train.py"
    assert found["sub/far"].linkname == "model.py"
    assert found["link.py"].linkname == "train.py"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For instance one that becomes shorter while it is packed."""
    (tmp_path / "log").write_text("x" * 100_000)
    whole = os.fstat
    monkeypatch.setattr(
        os, "fstat", lambda handle: os.stat_result([*whole(handle)[:6], 200_000, *whole(handle)[7:10]])
    )
    with pytest.raises(InputError, match=r"'log' in .* cannot be read"):
        pack(tmp_path)


def test_a_large_file_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused as soon as what is packed is too much."""
    monkeypatch.setattr(code_archive, "MOST_BYTES", 2**20)
    (tmp_path / "big").write_bytes(os.urandom(2**20) * 8)
    with pytest.raises(InputError, match=r"more than [12] MiB packed, and may be 1; its largest files: big"):
        pack(tmp_path)
