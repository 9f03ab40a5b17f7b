"""Acceptance records as vLLM, AIPerf, SGLang and TensorRT-LLM write them, request by request.

The files are JSON or JSON Lines of whatever holds the records (responses, choices, exported rows):
they are found by their field names, however deep they lie.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dspark_sim.workload.acceptance import AcceptanceRecords
from dspark_sim.workload.importers.documents import documents, holding
from dspark_sim.workload.importers.records import Names, RecordReader
from dspark_sim.workload.importers.registry import importer

_VLLM: Names = {
    "steps": ("num_spec_steps",),
    "accepted": ("num_accepted_draft_tokens",),
    "drafted": ("num_draft_tokens",),
    "histogram": ("acceptance_histogram",),
    "gamma": ("num_spec_tokens",),
    "completion": ("completion_tokens",),
    "length": ("mean_acceptance_length",),
    "rate": ("draft_acceptance_rate",),
    "round_accepted": ("per_step_accepted",),
    "round_drafted": ("per_step_drafted",),
}
_SGLANG: Names = {
    "steps": ("spec_verify_ct",),
    "accepted": ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num"),
    "drafted": ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num"),
    "histogram": ("spec_correct_drafts_histogram", "spec_accept_histogram"),
    "completion": ("completion_tokens",),
    "length": ("spec_accept_length",),
    "rate": ("spec_accept_rate",),
}
_TENSORRT: Names = {
    "steps": ("num_spec_steps",),
    "accepted": ("total_accepted_draft_tokens",),
    "drafted": ("total_draft_tokens",),
    "histogram": ("acceptance_histogram",),
    "gamma": ("num_spec_tokens",),
    "length": ("avg_decoded_tokens_per_iter",),
    "rate": ("acceptance_rate",),
}

PROPOSED = (
    "drafted counts all proposed drafts, also where a scheduler verified fewer: "
    "trimmed rounds cannot be told from rejected ones"
)


@importer("vllm", gives="acceptance", file="responses with metrics.speculative_decoding (summary, detailed)")
def vllm(path: Path) -> AcceptanceRecords:
    """Read vLLM's per-request metrics; ``detailed`` ones give every round's verified length.

    Raises:
        DataError: no record, a field missing, or a record that contradicts itself.
    """
    reader = RecordReader(path, _VLLM)
    for place, document in documents(path):
        completion = _completion(document)
        for fields in holding(document, "num_spec_steps"):
            reader.add(place, fields, _name(document, "id", "request_id"), completion)
    return reader.finish("vllm")


@importer("aiperf", gives="acceptance", file="profile_export.jsonl, histograms sparse")
def aiperf(path: Path) -> AcceptanceRecords:
    """Read AIPerf's exported rows; a metric stands as ``{value, unit}`` or as it is.

    Raises:
        DataError: no record, a field missing, or a record that contradicts itself.
    """
    reader = RecordReader(path, _VLLM)
    for place, document in documents(path):
        about = document.get("metadata") if isinstance(document, dict) else None
        name = _name(about, "x_request_id", "request_id", "session_num")
        for fields in holding(bare_values(document), "num_spec_steps"):
            reader.add(place, fields, name)
    return reader.finish("aiperf")


@importer("sglang", gives="acceptance", file="responses with meta_info")
def sglang(path: Path) -> AcceptanceRecords:
    """Read SGLang's meta_info, under its present or its older names.

    ``spec_accept_length`` is completion tokens / verify steps there, prefill's token included; the
    length used is 1 + correct / verify steps, as everywhere else.

    Raises:
        DataError: no record, a field missing, aliases that differ, or a record that contradicts itself.
    """
    reader = RecordReader(path, _SGLANG)
    for place, document in documents(path):
        for fields in holding(document, "spec_verify_ct"):
            reader.add(place, fields, _name(fields, "id"))
    return reader.finish("sglang", (PROPOSED,))


@importer("tensorrt-llm", gives="acceptance", file="responses with choices[].speculative_decoding")
def tensorrt_llm(path: Path) -> AcceptanceRecords:
    """Read TensorRT-LLM's choices, each a request of its own.

    Raises:
        DataError: no record, a field missing, or a record that contradicts itself.
    """
    reader = RecordReader(path, _TENSORRT)
    for place, document in documents(path):
        for i, choice in enumerate(holding(document, "speculative_decoding")):
            length = choice.get("avg_decoded_tokens_per_iter")
            fields = choice["speculative_decoding"] or {}
            reader.add(f"{place}, choice {i}", {**fields, "avg_decoded_tokens_per_iter": length})
    return reader.finish("tensorrt-llm")


def bare_values(document: Any) -> Any:
    """Return ``document`` with every ``{value, unit}`` object replaced by its value."""
    if isinstance(document, dict):
        if "value" in document and document.keys() <= {"value", "unit"}:
            return bare_values(document["value"])
        return {key: bare_values(value) for key, value in document.items()}
    return document


def _completion(document: Any) -> Any:
    usage = document.get("usage") if isinstance(document, dict) else None
    return usage.get("completion_tokens") if isinstance(usage, dict) else None


def _name(fields: Any, *keys: str) -> str:
    found = [fields[key] for key in keys if fields.get(key) is not None] if isinstance(fields, dict) else []
    return str(found[0]) if found else ""
