"""What a module call does on a node before anything of it is imported: its text comes before Ansible's own wrapper.

A module brings 86 files, which Python would compile at each call: two thirds of the CPU of a call that changes nothing.
"""

from __future__ import annotations


def keep_compiled(directory: str, most: int = 1000) -> None:
    """Keep the compiled form of what is imported from archives, by the hash of its source; only root does.

    `directory` is in memory: a plan leaves nothing on a disk, and a full disk does no harm. Where anything is not as it
    should be, Python compiles as always.
    """
    import contextlib
    import hashlib
    import importlib.util
    import marshal
    import os
    import stat
    import sys
    import tempfile
    import types
    import zipimport

    if os.geteuid():
        return
    try:
        os.makedirs(directory, 0o700, exist_ok=True)
        about = os.lstat(directory)
    except OSError:
        return
    if not stat.S_ISDIR(about.st_mode) or about.st_uid or about.st_mode & 0o022:
        return
    functions = vars(zipimport)
    compile_source = functions["_compile_source"]

    # a later Python may hand over more
    def kept(path: str, source: bytes, *more: object) -> types.CodeType:
        start = importlib.util.MAGIC_NUMBER + b"%d" % sys.flags.optimize
        file = os.path.join(directory, hashlib.sha256(start + source).hexdigest())
        code: types.CodeType
        with contextlib.suppress(OSError, ValueError, EOFError, TypeError), open(file, "rb") as stream:
            code = marshal.load(stream)  # noqa: S302 (only root could write it)
            return code
        code = compile_source(path, source, *more)
        with contextlib.suppress(OSError):
            names = os.listdir(directory)
            for name in names if len(names) > most else ():
                os.unlink(os.path.join(directory, name))
            descriptor, new = tempfile.mkstemp(dir=directory)
            try:
                with open(descriptor, "wb") as stream:
                    stream.write(marshal.dumps(code))
                os.rename(new, file)
            except OSError:
                # no room
                os.unlink(new)
        return code

    get_module_code = functions["_get_module_code"]
    codes: dict[tuple[int, str], object] = {}

    # Python asks for each module twice: for its file's name, and to run it
    def asked_once(importer: object, name: str) -> object:
        asked = (id(importer), name)
        if asked not in codes:
            codes[asked] = get_module_code(importer, name)
            return codes[asked]
        return codes.pop(asked)

    functions["_compile_source"] = kept
    functions["_get_module_code"] = asked_once
