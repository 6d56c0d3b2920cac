"""meta-pytorch/BackendBench#45: an op succeeds, and every later call dies with an illegal memory access.

The op that is blamed by its own status is innocent; a known op run after each case finds the culprit.
Expect: the poisoner unsupported, its victims as they are on a healthy device.
"""

poisoned = False


def poison(call):
    global poisoned
    result = call.run(*call.args, **call.kwargs)
    poisoned = True
    return result


def victim(call):
    if poisoned:
        raise RuntimeError("HIP error: an illegal memory access was encountered")
    return call.run(*call.args, **call.kwargs)


FAULTS = {"aten::embedding.default": poison, "aten::*": victim}
