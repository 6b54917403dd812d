"""Runs one program against its tests, inside the sandbox, and reports through a sealed file.

Descriptor 3 holds the request as JSON (nonce, program, tests, entry point, style) and takes the report. Nothing of the
request is on disk, and the report counts only with the nonce, once, written by this process after the last test: a
program that prints a verdict, leaves early, or replaces the test library gets none.
"""

import builtins
import fcntl
import json
import os
import random
import sys
import types
import unittest

# Numbered in the kernel's headers; the module names them only from Python 3.9 on some builds.
F_ADD_SEALS, SEAL_EVERYTHING = 1033, 0xF
MODULE = "__test__"


def main():
    channel = fcntl.fcntl(3, fcntl.F_DUPFD_CLOEXEC, 200)
    os.close(3)
    request = json.loads(os.pread(channel, os.fstat(channel).st_size, 0))
    os.ftruncate(channel, 0)
    del sys.path[0]
    silence()
    report = run(request, lambda stage: os.pwrite(channel, b'{"stage":"%s"}    ' % stage, 0))
    send(channel, report)


def silence():
    """What the program prints is nobody's business; a flood of it costs nothing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def send(channel, report, getpid=os.getpid, encode=json.dumps, write=os.pwrite, truncate=os.ftruncate,
         seal=fcntl.fcntl, leave=os._exit, own=os.getpid()):
    """Writes the report for good and ends the process, with no clean-up the program could have left."""
    if getpid() != own:
        leave(1)
    truncate(channel, 0)
    write(channel, encode(report).encode(), 0)
    seal(channel, F_ADD_SEALS, SEAL_EVERYTHING)
    leave(0)


def run(request, enter):
    nonce, style, entry_point = request["nonce"], request["style"], request["entry_point"]
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        os.environ[threads] = "1"
    random.seed(0)
    sys.argv = [MODULE + ".py"]
    module = types.ModuleType(MODULE)
    module.__dict__.update(__builtins__=builtins, __file__=MODULE + ".py", __package__=None)
    # The public evaluator leaves these three in reach, and some solutions lean on it.
    module.__dict__.update(os=os, sys=sys, environ=os.environ)
    sys.modules[MODULE] = module
    pristine = Pristine()
    result = Result()

    def answer(verdict, error="", loaded=0):
        return {"nonce": nonce, "verdict": verdict, "error": error, "loaded": loaded, "ran": result.testsRun,
                "succeeded": result.succeeded, "failed": result.failed}

    enter(b"program")
    error = execute(request["program"], module)
    if error:
        return answer("program", error)
    changed = pristine.changed()
    if changed:
        return answer("tampered", changed)
    enter(b"suite")
    if style != "asserts":
        error = execute(request["tests"], module)
        if error:
            return answer("suite", error)
    try:
        suite = load(style, module, entry_point, request["tests"])
        loaded = suite.countTestCases()
    except BaseException as failure:
        return answer("suite", describe(failure))
    enter(b"tests")
    try:
        suite.run(result)
    except BaseException as failure:
        result.note("the suite", failure)
    changed = pristine.changed()
    if changed:
        return answer("tampered", changed, loaded)
    return answer("ran", "", loaded)


def execute(source, module):
    """Runs source in the module; the name of what it raised, or nothing."""
    try:
        exec(compile(source, MODULE + ".py", "exec", dont_inherit=True), module.__dict__)
    except BaseException as failure:
        return describe(failure)
    return ""


def load(style, module, entry_point, tests):
    """The suite: a class of unit tests, a function `check` that takes the solution, or bare asserts."""
    names = module.__dict__
    if style == "unittest":
        return unittest.TestLoader().loadTestsFromTestCase(names["TestCases"])
    if style == "check":
        check, solution = names["check"], names[entry_point]
        return unittest.TestSuite([Single("check", lambda: check(solution))])
    code = compile(tests, MODULE + ".py", "exec", dont_inherit=True)
    return unittest.TestSuite([Single("asserts", lambda: exec(code, names))])


class Single(unittest.TestCase):
    """A test that is one call."""

    def __init__(self, name, call):
        super().__init__("run_call")
        self._testMethodName = name
        setattr(self, name, call)

    def run_call(self):
        raise NotImplementedError


class Result(unittest.TestResult):
    """Counts what succeeded instead of trusting that nothing failed: a skipped test is no success."""

    def __init__(self):
        super().__init__()
        self.succeeded = 0
        self.failed = []

    def note(self, test, failure):
        name = getattr(test, "_testMethodName", None) or str(test)
        self.failed.append([name, describe(failure)])

    def addSuccess(self, test):
        self.succeeded += 1

    def addExpectedFailure(self, test, err):
        self.succeeded += 1

    def addFailure(self, test, err):
        self.note(test, err[1])

    def addError(self, test, err):
        self.note(test, err[1])

    def addSkip(self, test, reason):
        self.failed.append([test._testMethodName if hasattr(test, "_testMethodName") else str(test), "skipped"])

    def addUnexpectedSuccess(self, test):
        self.failed.append([test._testMethodName, "unexpected success"])

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.note(test, err[1])


class Pristine:
    """The test library and the built-in names as they were before the program ran."""

    def __init__(self):
        self.builtins = dict(vars(builtins))
        self.modules = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "unittest"}
        self.owners = [owner for module in self.modules.values() for owner in owners_of(module)]
        self.before = [dict(vars(owner)) for owner in self.owners]

    def changed(self, current=vars(builtins), read=vars, modules=sys.modules):
        """What is no longer itself, or nothing. Names that were added are no harm."""
        for name, value in self.builtins.items():
            if current.get(name) is not value and name != "_":
                return "builtins." + name
        for name, module in self.modules.items():
            if modules.get(name) is not module:
                return name
        for owner, before in zip(self.owners, self.before):
            now = read(owner)
            for name, value in before.items():
                if now.get(name) is not value:
                    return owner.__name__ + "." + name
        return ""


def owners_of(module):
    classes = [value for value in vars(module).values()
               if isinstance(value, type) and value.__module__.split(".")[0] == "unittest"]
    return [module] + classes


def describe(failure):
    """The kind of an error, with its message where that is the same on every run."""
    kind = type(failure).__name__
    if isinstance(failure, (ImportError, NameError, SyntaxError)):
        return "%s: %s" % (kind, str(failure)[:200])
    return kind


if __name__ == "__main__":
    main()
