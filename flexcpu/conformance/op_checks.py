"""The checks on op_db. Each runs samples on copies for the CPU and for the device and compares all that shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any

import torch
from torch.utils._pytree import tree_map

from . import layouts
from .compare import Tolerance, difference, requiring_grad, same_bits, tensors
from .databases import RANDOM, UNINITIALIZED, op_name
from .devices import Device, Transfer, to_host
from .distribution import distribution_difference
from .execution import Outcome, describe, execute
from .results import Result
from .subject import Subject, seeded_like

Sample = tuple[Any, tuple, dict]  # input, args, kwargs


class OpSubject(Subject):
    """One op in one dtype, and its samples, generated once."""

    def __init__(self, info, dtype: torch.dtype | None, device: Device, progress: Callable[[int], None]):
        super().__init__(info, dtype, device, progress)
        self.name = op_name(info)
        self.values = self.name not in UNINITIALIZED
        self._samples: dict[bool, list] = {}

    def all_samples(self, requires_grad: bool) -> list:
        if requires_grad not in self._samples:
            self._samples[requires_grad] = list(self.info.sample_inputs("cpu", self.dtype, requires_grad=requires_grad))
        return self._samples[requires_grad]

    def samples(self, result: Result, cap: int, requires_grad: bool = False) -> Iterator[tuple[int, Any]]:
        """At most `cap` samples, with their positions in the database's list."""
        return self.chosen(self.all_samples(requires_grad), result, cap)

    def run(
        self,
        result: Result,
        where: str,
        call: Callable[[Sample], Any],
        source: Any,
        tolerance: Tolerance | None = None,
        transfer: Transfer | None = None,
    ) -> Outcome:
        """Runs `call` on a copy of `source` for the CPU and on one for the device (made by `transfer`), and compares.
        Returns the CPU's outcome."""
        result.samples += 1
        transfer = transfer or Transfer(self.device.name)
        ours, theirs = transfer(source), Transfer("cpu")(source)
        expected = execute(lambda: call(theirs), seed=0)
        actual = execute(lambda: self.device.invoke(call, ours), seed=0)
        operands = (theirs, ours)
        if expected.error is not None:
            operands = _without_resized(theirs, ours, source)
        place = self.device.name if transfer.moved else None
        result.compare(where, expected, actual, operands, tolerance or self.tolerance, place, values=self.values)
        return expected

    def call(self, operands: Sample) -> Any:
        return self.info(operands[0], *operands[1], **operands[2])

    def call_inplace(self, operands: Sample) -> Any:
        return self.info.inplace_variant(operands[0], *operands[1], **operands[2])


def operands_of(sample) -> Sample:
    return sample.input, sample.args, sample.kwargs


def _without_resized(theirs: Any, ours: Any, source: Any) -> tuple[list, list]:
    """The operands of a call that the CPU rejected, but for those that it had resized before: nobody wrote their
    elements."""
    kept = [t.shape == was.shape for t, was in zip(tensors(theirs), tensors(source))]
    return list(compress(tensors(theirs), kept)), list(compress(tensors(ours), kept))


def forward(subject: OpSubject, result: Result, cap: int) -> None:
    """Values, dtypes, shapes, strides, aliasing, warnings and errors of every sample, and which ran natively."""
    for index, sample in subject.samples(result, cap):
        subject.device.reset_fallbacks()
        expected = subject.run(result, f"sample {index}", subject.call, operands_of(sample))
        fallen = [name for name, count in subject.device.fallbacks().items() if count]
        result.native_samples += not fallen
        result.fallbacks.update(fallen)
        if expected.random and subject.name not in RANDOM:
            raise RuntimeError(f"{subject.name} draws random numbers: add it to RANDOM in databases.py")


def backward(subject: OpSubject, result: Result, cap: int) -> None:
    """Gradients of all operands for gradients of ones and for random ones; through the in-place variant too."""
    for index, sample in subject.samples(result, cap, requires_grad=True):

        def gradients(operands: Sample, call=subject.call, process=sample.output_process_fn_grad) -> Any:
            outputs, inputs = requiring_grad(process(call(operands))), requiring_grad(operands)
            found = []
            for make in (torch.ones_like, seeded_like) if outputs else ():
                given = [make(t) for t in outputs]
                found.append(torch.autograd.grad(outputs, inputs, given, retain_graph=True, allow_unused=True))
            return [t.detach() for t in outputs], found

        def gradients_inplace(operands: Sample, gradients=gradients) -> Any:
            changed = operands[0].clone()
            return gradients(operands, lambda o: subject.info.inplace_variant(changed, *o[1], **o[2]))

        operands = operands_of(sample)
        subject.run(result, f"sample {index}", gradients, operands)
        if (
            subject.info.inplace_variant
            and subject.info.supports_inplace_autograd
            and isinstance(sample.input, torch.Tensor)
        ):
            subject.run(result, f"sample {index} in-place", gradients_inplace, operands)


def out(subject: OpSubject, result: Result, cap: int) -> None:
    """out= of every kind that callers have at hand, the forbidden ones included."""

    def call(operands: tuple[Sample, Any]) -> Any:
        (first, args, kwargs), given = operands
        return subject.info(first, *args, **kwargs, out=given)

    for index, sample in subject.samples(result, cap):
        operands = operands_of(sample)
        plain = execute(lambda: subject.call(Transfer("cpu")(operands)), 0)
        results = [plain.value] if isinstance(plain.value, torch.Tensor) else plain.value
        if plain.error is not None or not isinstance(results, (tuple, list)):
            continue
        if not all(isinstance(t, torch.Tensor) and t.layout == torch.strided for t in results):
            continue
        for kind, made, changed in layouts.out_tensors(results, operands):
            given = made[0] if isinstance(plain.value, torch.Tensor) else tuple(made)
            tolerance = subject.tolerance.computed_in(results[0].dtype)  # and converted to out's dtype
            subject.run(result, f"sample {index} out={kind}", call, (changed, given), tolerance)


def inplace(subject: OpSubject, result: Result, cap: int) -> None:
    """The in-place variant on a tensor of its own, on a part of a larger one, and on one that overlaps itself."""
    for index, sample in subject.samples(result, cap):
        if not isinstance(sample.input, torch.Tensor) or sample.input.layout != torch.strided:
            continue
        operands = operands_of(sample)
        for kind, changed in layouts.inplace_operands(sample.input):
            subject.run(result, f"sample {index} {kind}", subject.call_inplace, (changed, *operands[1:]))


def strided(subject: OpSubject, result: Result, cap: int) -> None:
    """The operands in every other layout: transposed, stepped, at an offset, expanded, with conj and neg bits."""
    for index, sample in subject.samples(result, cap):
        operands = operands_of(sample)
        for kind, arrange in layouts.LAYOUTS.items():
            changed = layouts.arranged(operands, arrange)
            if changed is not None:
                subject.run(result, f"sample {index} {kind}", subject.call, changed)


def pending(subject: OpSubject, result: Result, cap: int) -> None:
    """Every operand a rearranged copy that the device has put off: a flip, a permuted and an expanded copy. What it is
    a copy of is shared with it, and must not change."""
    for index, sample in subject.samples(result, cap):
        operands = operands_of(sample)
        for kind in layouts.PENDING:
            changed = layouts.arranged(operands, layouts.repeated) if kind == "expanded" else operands
            if changed is None:
                continue
            calls = {"": subject.call}
            if subject.info.inplace_variant and isinstance(sample.input, torch.Tensor):
                calls[" in-place"] = subject.call_inplace
            for form, call in calls.items():
                where = f"sample {index} pending {kind}{form}"
                with subject.device.pending(kind) as transfer:
                    subject.run(result, where, call, changed, transfer=transfer)
                    if transfer.has_changed_sources():
                        result.differs(where, "what a pending operand is a copy of was changed")


def unclaimed(subject: OpSubject, result: Result, cap: int) -> None:
    """Dtypes that the database does not claim: rejected as the CPU rejects them, or equal where it takes them."""
    try:
        subject.all_samples(False)
    except Exception:  # nothing to run: the database cannot make samples of this dtype, whatever the device
        return
    for index, sample in subject.samples(result, cap):
        subject.run(result, f"sample {index}", subject.call, operands_of(sample))


def errors(subject: OpSubject, result: Result, cap: int) -> None:
    """The database's error inputs: the exception's type, and its text except where it names the device."""
    for index, error_input in enumerate(subject.info.error_inputs("cpu")):
        subject.progress(index)
        subject.run(result, f"error input {index}", subject.call, operands_of(error_input.sample_input))


def random(subject: OpSubject, result: Result, cap: int) -> None:
    """Reproducible for a seed, different for another where the CPU's are, and of the CPU's distribution."""
    for index, sample in subject.samples(result, cap):
        operands = operands_of(sample)

        def on_cpu(seed: int) -> Outcome:
            given = Transfer("cpu")(operands)
            return execute(lambda: subject.call(given), seed)

        def on_device(seed: int) -> Outcome:
            given = Transfer(subject.device.name)(operands)
            outcome = execute(lambda: subject.device.invoke(subject.call, given), seed)
            outcome.value = tree_map(lambda t: to_host(t) if isinstance(t, torch.Tensor) else t, outcome.value)
            return outcome

        first = on_cpu(1)
        if first.error is not None or not first.random:
            continue
        result.samples += 1
        once, again, other = on_device(1), on_device(1), on_device(2)
        failed = once.error or again.error or other.error
        if failed is not None:
            found = f"raises {describe(failed)}"
        elif not _all_equal(again.value, once.value):
            found = "two draws of one seed differ"
        elif _all_equal(once.value, other.value) and not _all_equal(first.value, on_cpu(2).value):
            found = "draws of two seeds are equal"
        else:
            found = distribution_difference(lambda seed: on_cpu(seed).value, lambda seed: on_device(seed).value)
        if found:
            result.differs(f"sample {index}", found)


def _all_equal(a: Any, b: Any) -> bool:
    return difference(a, b, Tolerance(), None) is None


def shared(subject: OpSubject, result: Result, cap: int) -> None:
    """Every operand has a clone that watches it: an op must not change the clone, nor end the sharing if it only reads;
    and writes to clones and results must not be seen elsewhere."""
    for index, sample in subject.samples(result, cap):
        operands = operands_of(sample)
        _with_peers(subject, result, f"sample {index}", subject.call, operands)
        if subject.info.inplace_variant and isinstance(sample.input, torch.Tensor):
            _with_peers(subject, result, f"sample {index} in-place", subject.call_inplace, operands, inplace=True)
    if subject.info.supports_autograd and subject.dtype in subject.info.supported_backward_dtypes("cpu"):
        for index, sample in subject.samples(result, cap, requires_grad=True):

            def gradients(operands: Sample, process=sample.output_process_fn_grad) -> Any:
                outputs, inputs = requiring_grad(process(subject.call(operands))), requiring_grad(operands)
                return torch.autograd.grad(outputs, inputs, [torch.ones_like(t) for t in outputs], allow_unused=True)

            _with_peers(subject, result, f"sample {index} backward", gradients, operands_of(sample))


def _with_peers(
    subject: OpSubject,
    result: Result,
    where: str,
    call: Callable[[Sample], Any],
    source: Sample,
    *,
    inplace: bool = False,
) -> None:
    device = subject.device
    result.samples += 1
    transfer = Transfer(device.name)
    ours, theirs = transfer(source), Transfer("cpu")(source)
    watched = [t for t in _distinct(ours) if t.layout == torch.strided]
    counterparts = [t for t in _distinct(theirs) if t.layout == torch.strided]
    before = [t.detach().clone() for t in counterparts]
    versions = [t._version for t in counterparts]
    peers = [device.clone(t) for t in watched]
    shares = [device.shares(t, peer) for t, peer in zip(watched, peers)]
    if device.counts_sharing:
        for t, peer, share in zip(watched, peers, shares):
            if t.numel() and t.is_contiguous() and t.untyped_storage().nbytes() == t.nbytes and not share:
                result.differs(where, "a clone of a dense tensor does not share its bytes")
                return

    expected = execute(lambda: call(theirs), 0)
    actual = execute(lambda: device.invoke(call, ours), 0)
    for peer, value in zip(peers, before):
        if not same_bits(peer, value):
            result.differs(where, "the clone of an operand was changed")
            return
    for position, (t, peer, counterpart) in enumerate(zip(watched, peers, counterparts)):
        read_only = counterpart._version == versions[position] and same_bits(counterpart, before[position])
        if shares[position] and read_only and not (inplace and t is ours[0]):
            result.peers += 1
            if device.shares(t, peer):
                result.peers_kept += 1
            else:
                result.peers_lost.append(f"{where}: operand {position}")

    # Writes must stay where they are made: a clone's in the clone, a result's in it and in what the CPU says it
    # aliases.
    for peer in peers:
        peer.fill_(1)
    place = device.name if transfer.moved else None
    same = result.compare(where, expected, actual, (theirs, ours), subject.tolerance, place, values=subject.values)
    if same and expected.error is None:
        for t, counterpart in zip(_distinct(actual.value), _distinct(expected.value)):
            if execute(lambda: _overwrite(counterpart), 0).error is None:  # not where the CPU refuses: expanded results
                _overwrite(t)
        found = difference(tensors(ours), tensors(theirs), subject.tolerance, None, values=not expected.random)
        if found:
            result.differs(where, f"operands after a write to the result: {found}")


def _distinct(tree: Any) -> list[torch.Tensor]:
    return list({id(t): t for t in tensors(tree)}.values())


def _overwrite(tensor: torch.Tensor) -> None:
    if tensor.layout == torch.strided:
        tensor.detach().fill_(1)


CHECKS = {
    "forward": forward, "backward": backward, "out": out, "inplace": inplace, "layouts": strided, "pending": pending, "shared": shared,
    "random": random, "unclaimed": unclaimed, "errors": errors,
}  # fmt: skip
