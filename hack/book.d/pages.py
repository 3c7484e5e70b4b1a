"""What the book has beyond docs/: its summary, and a page of the log's events, written from their schema.

usage: pages.py SOURCE     a copy of the repository's pages, which this completes
"""

import json
import pathlib
import re
import sys

# In the order of the summary's reference, after the log.
GENERATED = [("Events of the log", "events.md"), ("The command line", "cli.md")]
AFTER = "- [The log of a run](docs/audit.md)\n"
PROJECT = """
# The project

- [Working on agentbox](CONTRIBUTING.md)
- [Reporting a hole](SECURITY.md)
"""


def summary(text):
    """docs/SUMMARY.md for a book whose pages are those of the whole repository."""
    text = text.replace("](", "](docs/").replace("# Summary\n", "# Summary\n\n[agentbox](README.md)", 1)
    if AFTER not in text:
        sys.exit(f"pages.py: docs/SUMMARY.md has no line {AFTER!r}")
    lines = "".join(f"- [{title}](docs/{file})\n" for title, file in GENERATED)
    return text.replace(AFTER, AFTER + lines) + PROJECT


def kind(schema, value):
    """The type of a value, in a word or two."""
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{word}`" for word in value["enum"])
    if "anyOf" in value or "oneOf" in value:
        each = [kind(schema, one) for one in value.get("anyOf", value.get("oneOf"))]
        return " or ".join(one for one in each if one != "null")
    types = value.get("type", "any")
    types = [types] if isinstance(types, str) else types
    words = [word for word in types if word != "null"]
    if words == ["array"]:
        return f"list of {kind(schema, value.get('items', {}))}"
    return " or ".join(words) or "null"


def cell(text):
    return " ".join(text.split()).replace("|", "\\|")


def table(schema, value):
    required = set(value.get("required", []))
    yield "| Key | Type | Meaning |\n|---|---|---|\n"
    for name, field in value["properties"].items():
        always = "" if name in required else "; may be absent"
        yield f"| `{name}` | {cell(kind(schema, field))}{always} | {cell(field.get('description', ''))} |\n"


def definition(schema, value):
    """One definition of the schema: its text, its keys, its variants."""
    if "description" in value:
        yield f"{value['description']}\n\n"
    if value.get("properties"):
        yield from table(schema, value)
        yield "\n"
    for variant in value.get("oneOf", []):
        if variant.get("properties"):
            yield f"{cell(variant.get('description', ''))}\n\n"
            yield from table(schema, variant)
            yield "\n"
        else:
            yield f"- {kind(schema, variant)}: {cell(variant.get('description', ''))}\n"
    if "enum" in value or "const" in value or (value.get("type") and not value.get("properties") and "oneOf" not in value):
        yield f"{kind(schema, value)}\n"
    yield "\n"


def events(schema):
    yield "# Events of the log\n\nFor programs that read [the log of a run](audit.md). Made from "
    yield "[event.schema.json](event.schema.json), which is made from the types that write the log.\n\n## Each line\n\n"
    yield from definition(schema, schema)
    for name, value in schema["$defs"].items():
        yield f"## {name}\n\n"
        yield from definition(schema, value)


def main():
    source = pathlib.Path(sys.argv[1])
    docs = source / "docs"
    (source / "SUMMARY.md").write_text(summary((docs / "SUMMARY.md").read_text()))
    (docs / "SUMMARY.md").unlink()
    schema = json.loads((docs / "event.schema.json").read_text())
    (docs / "events.md").write_text("".join(events(schema)))
    # A line that ends with a file's name that the book shows as it is: mdBook keeps such files beside the pages.
    kubernetes = source / "hack" / "kubernetes"
    names = sorted(path.name for path in kubernetes.iterdir())
    listed = "".join(f"- [{name}]({name})\n" for name in names)
    (kubernetes / "README.md").write_text(f"# Files for Kubernetes\n\n{listed}")
    for page in docs.glob("*.md"):
        text = page.read_text()
        text = re.sub(r"\]\(\.\./hack/kubernetes/?\)", "](../hack/kubernetes/README.md)", text)
        page.write_text(text)
    with (source / "SUMMARY.md").open("a") as out:
        out.write("- [Files for Kubernetes](hack/kubernetes/README.md)\n")


main()
