"""Ten ops on tiny tensors: what a call costs besides its arithmetic. Instructions are counted over these, too."""

from ..case import Case, Tensor
from ..sizes import shape

A = {"a": Tensor(shape("tiny"))}
AB = A | {"b": Tensor(shape("tiny"))}

CASES = [
    Case("add", "a + b", AB, out="torch.add(a, b, out=out)"),
    Case("mul-scalar", "a * 2.0", A, out="torch.mul(a, 2.0, out=out)"),
    Case("relu", "a.relu()", A),
    Case("sum", "a.sum()", A, out="torch.sum(a, dim=(), out=out)"),
    Case("softmax", "a.softmax(1)", A),
    Case("cat", "torch.cat((a, b))", AB, out="torch.cat((a, b), out=out)"),
    Case("matmul", "a @ b", AB, out="torch.mm(a, b, out=out)"),
    Case("view", "a.view(-1)", A),
    Case("clone", "a.clone()", A),
    Case("zeros", "torch.zeros(8, 8, device=device)"),
]
