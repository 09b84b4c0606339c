"""Details of an artifact from its file, its evaluation and its stage are put together."""

from __future__ import annotations

from shrink.contract.details import Audit, Confusion, Details, OperatorRow, Task, Usage

OPERATOR = OperatorRow(name="ADD", parameters=0, activation_bytes=8)
FILE = Details(
    task=Task(metrics=("accuracy",)),
    interface=Usage(labels=("cat", "dog")),
    confusion=(Confusion(labels=("cat", "dog")),),
    operators=(OPERATOR,),
)


def test_fields_that_a_stage_leaves_empty_stay() -> None:
    found = FILE.filled_by(Details(others={"factor": 2})).filled_by(None)
    assert (found.task, found.interface) == (FILE.task, FILE.interface)
    assert (found.confusion, found.operators) == (FILE.confusion, (OPERATOR,))
    assert found.others == {"factor": 2}


def test_the_later_audit_counts_and_has_the_operators() -> None:
    audit = Audit(operators=(OPERATOR,), float_islands=("ADD",))
    found = FILE.filled_by(Details(audit=Audit())).filled_by(Details(audit=audit))
    assert (found.audit, found.operators, found.task) == (audit, (), FILE.task)
