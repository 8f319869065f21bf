"""The documents of docs/reference, which the program itself is the source of."""

from reference_pages import commands, formats, reasons, schemas, workloads


def documents() -> dict[str, str]:
    """Return the text of each document by its name below docs/reference."""
    return {
        "commands.rst": commands.page(),
        "formats.rst": formats.page(),
        "inventory-keys.rst": schemas.inventory_page(),
        "messages.rst": schemas.message_page(),
        "reasons.rst": reasons.page(),
        "report-fields.rst": schemas.report_page(),
        "scenario-keys.rst": schemas.scenario_page(),
        "workloads.rst": workloads.page(),
    }
