"""`submit_plan`: the planner's whole plan. Its arguments are the plan's own contract."""

from agents.contracts.errors import ErrorCode
from agents.contracts.plan import Plan
from agents.contracts.tool import ToolContract
from agents.tools.base import Tool
from agents.tools.control import control_contract

CONTRACT: ToolContract = control_contract(
    name="submit_plan",
    description=(
        "Submit the whole plan: steps with id (lower case, digits, - and _), title, instructions, acceptance (at least"
        " one criterion), depends_on (ids of other steps; no circles), resources (such as path:src/app) and, where it"
        " matters, tier. Must be the only call."
    ),
    errors=(ErrorCode.INVALID_PLAN,),
)

TOOL: Tool[Plan] = Tool(CONTRACT, Plan)
