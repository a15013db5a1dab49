"""Does `device="flex"` give what stock CPU PyTorch gives?

The databases inside the torch wheel (`op_db`, `module_db`, `optim_db` of `torch.testing._internal`) are run twice on
the same seeded samples, on the CPU and on a device, and everything a program can see is compared: values within the
database's own tolerances, dtypes, shapes, strides, aliasing, gradients, warnings, exceptions, what happened to the
inputs.

    python -m flexcpu.conformance --quick             # a table, five numbers, and a JSON file
    python -m flexcpu.conformance --full -n 2
    python -m flexcpu.conformance --full -k logsumexp
    pytest --pyargs flexcpu.conformance -k "softmax and float32" -n 2

pytest takes its device and tier from FLEXCPU_CONFORMANCE_DEVICE ("flex") and FLEXCPU_CONFORMANCE_TIER ("quick").
Either runs a case `op.variant-dtype-check` in a worker process, so that a crash or a hang is that case's failure only.
What may differ is listed in expected_differences.toml: an op, dtypes, a check and the reason in each entry.
"""
