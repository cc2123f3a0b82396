"""What /openapi.json says is what the server does: schemathesis asks for a while and compares."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
OPERATIONS = [
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "POST /v1/predict",
    "GET /v1/models",
    "GET /v1/models/{name}",
    "POST /v1/models/{name}:reload",
    "GET /v1/labels",
    "GET /v1/labels/{label}",
]


@pytest.fixture(scope="session")
def described(server):
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    return {operation.label: operation for operation in (found.ok() for found in schema.get_all_operations())}


def test_every_operation_is_asked(described):
    assert set(described) == set(OPERATIONS)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("label", OPERATIONS)
def test_answers_are_as_described(described, label, mode):
    operation = described[label]
    if mode is GenerationMode.NEGATIVE and label in ("GET /healthz", "GET /readyz", "GET /metrics", "GET /v1/models"):
        pytest.skip("takes nothing that could be wrong")

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=25 if "predict" in label else 10,
        deadline=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    def ask(case):
        if isinstance(case.body, dict) and mode is GenerationMode.POSITIVE:
            for name in ("model", "only", "exclude"):  # hardly any synthetic name is that of a model or label
                case.body.pop(name, None)
            case.body["k"] = min(case.body.get("k", 5), 20)
        statuses.append(case.call_and_validate(checks=CHECKS, timeout=20).status_code)

    statuses = []
    ask()
    if mode is GenerationMode.NEGATIVE:
        assert any(400 <= status < 500 for status in statuses)
    elif "{" not in label:
        assert 200 in statuses
