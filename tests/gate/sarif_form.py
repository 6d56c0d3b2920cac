"""The parts of SARIF 2.1.0 that the gate writes, from the specification (sections 3.13 to 3.58), and their check.

Every object lists the properties that SARIF knows for it, so that a misspelt one is found. The official schema file is
not in this repository; on 2026-12-01 outputs were held against it with jsonschema, as sarif-multitool 5.7.0 ships it,
and against that tool's own rules for SARIF and for GitHub (`validate --rule-kind "Sarif;Ghas"`), and had no error.
"""

from __future__ import annotations

from typing import Any

TEXT: dict[str, Any] = {"type": str}
COUNT: dict[str, Any] = {"type": int, "minimum": 0}
ANY: dict[str, Any] = {}


def an(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": dict, "required": required, "properties": {**properties, "properties": {"type": dict}}}


def many(items: dict[str, Any], least: int = 0) -> dict[str, Any]:
    return {"type": list, "items": items, "least": least}


MESSAGE = an((), text=TEXT, markdown=TEXT, id=TEXT, arguments=many(TEXT))
LEVEL = {"type": str, "enum": ("none", "note", "warning", "error")}
ARTIFACT_LOCATION = an((), uri=TEXT, uriBaseId=TEXT, index=COUNT, description=MESSAGE)
REGION = an(
    (), startLine={"type": int, "minimum": 1}, startColumn={"type": int, "minimum": 1}, endLine=COUNT, snippet=ANY
)
PHYSICAL = an((), artifactLocation=ARTIFACT_LOCATION, region=REGION, contextRegion=REGION, address=ANY)
LOCATION = an((), id=COUNT, physicalLocation=PHYSICAL, logicalLocations=ANY, message=MESSAGE)
SUPPRESSION = an(
    ("kind",),
    kind={"type": str, "enum": ("inSource", "external")},
    status={"type": str, "enum": ("accepted", "underReview", "rejected")},
    justification=TEXT,
    guid=TEXT,
    location=LOCATION,
)
RESULT = an(
    ("message",),
    ruleId=TEXT,
    ruleIndex=COUNT,
    kind=TEXT,
    level=LEVEL,
    message=MESSAGE,
    locations=many(LOCATION),
    partialFingerprints={"type": dict, "each": TEXT},
    fingerprints={"type": dict, "each": TEXT},
    suppressions=many(SUPPRESSION),
    baselineState={"type": str, "enum": ("new", "unchanged", "updated", "absent")},
)
NOTIFICATION = an(("message",), level=LEVEL, message=MESSAGE, locations=many(LOCATION), timeUtc=TEXT)
INVOCATION = an(
    ("executionSuccessful",),
    executionSuccessful={"type": bool},
    exitCode={"type": int},
    exitCodeDescription=TEXT,
    commandLine=TEXT,
    toolExecutionNotifications=many(NOTIFICATION),
    toolConfigurationNotifications=many(NOTIFICATION),
)
MULTIFORMAT = an(("text",), text=TEXT, markdown=TEXT)
CONFIGURATION = an((), enabled={"type": bool}, level=LEVEL, rank={"type": (int, float)}, parameters=ANY)
RULE = an(
    ("id",), id=TEXT, name=TEXT, shortDescription=MULTIFORMAT, fullDescription=MULTIFORMAT, helpUri=TEXT,
    help=MULTIFORMAT, defaultConfiguration=CONFIGURATION,
)  # fmt: skip
DRIVER = an(("name",), name=TEXT, version=TEXT, semanticVersion=TEXT, informationUri=TEXT, rules=many(RULE))
RUN = an(
    ("tool",), tool=an(("driver",), driver=DRIVER, extensions=ANY), invocations=many(INVOCATION),
    results=many(RESULT), artifacts=ANY, automationDetails=ANY, columnKind=TEXT,
)  # fmt: skip
LOG = an(
    ("version", "runs"),
    version={"type": str, "enum": ("2.1.0",)},
    runs=many(RUN),
    **{"$schema": TEXT, "inlineExternalProperties": ANY},
)


def faults(value: Any, form: dict[str, Any], where: str = "log") -> list[str]:
    """What is not as it must be, each with its place."""
    if (kind := form.get("type")) is None:
        return []
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        return [f"{where} is a {type(value).__name__}"]
    found = [f"{where} lacks {name}" for name in form.get("required", ()) if name not in value]
    if value not in form.get("enum", (value,)):
        found.append(f"{where} is {value!r}")
    if isinstance(value, int) and value < form.get("minimum", value):
        found.append(f"{where} is {value}")
    if isinstance(value, list):
        found += [fault for i, item in enumerate(value) for fault in faults(item, form["items"], f"{where}[{i}]")]
    if isinstance(value, dict) and "each" in form:
        found += [fault for name, item in value.items() for fault in faults(item, form["each"], f"{where}.{name}")]
    elif isinstance(value, dict) and "properties" in form:
        known = form["properties"]
        found += [f"{where} has the unknown {name}" for name in value if name not in known]
        found += [
            fault for name in value if name in known for fault in faults(value[name], known[name], f"{where}.{name}")
        ]
    return found
