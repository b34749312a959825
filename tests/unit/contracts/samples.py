"""One instance of everything that is stored or crosses Temporal, with every field set to something telling."""

from datetime import UTC, datetime

from pydantic import BaseModel

from agents.contracts import (
    approval,
    artifact,
    errors,
    event,
    ids,
    message,
    model,
    network,
    plan,
    run,
    sandbox,
    task,
    tool,
    trajectory,
)
from agents.contracts.errors import ErrorCode

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
SHA = "0123456789abcdef" * 4
TASK_ID = "task_01J9ZK3V8Q4T5W6X7Y8Z9A0B1C"
PLACE = ids.Place(task_id=TASK_ID, epoch=1, role=ids.Role.EXECUTOR, revision=2, step="fix")
BLOB = artifact.BlobRef(sha256=SHA, bytes=70_000)
FAULT = errors.ErrorInfo(code=ErrorCode.EXEC_TIMEOUT, detail="the command ran 120 s; it was stopped")
USAGE = model.Usage(prompt_tokens=900, cached_tokens=800, completion_tokens=70, cost_micro=1_234)
CALL = tool.ToolCall(id="call_1", name="shell", arguments='{"command": "make"}')
LIMITS = task.Limits(tokens=100_000, cost_micro=5_000_000, wall_s=3_600, turns=50, parallel=2, review_rounds=2)
LINE = event.PlanStepLine(id="fix", title="Fix the parser", depends_on=("look",))
MAIL = message.Mail(id="msg_1", seq=3, kind="findings", sender="reviewer", text="the test still fails", sent_at=AT)
RESULT = tool.ToolResult(
    tool="shell", content="1 failed", exit_code=1, error_code=ErrorCode.EXEC_TIMEOUT, duration_ms=120_000, full=BLOB
)
STEP = plan.PlanStep(
    id="fix",
    title="Fix the parser",
    instructions="Make empty input give an empty tree.",
    acceptance=["the tests pass"],
    depends_on=["look"],
    resources=["path:src/parser"],
    tier="full",
)
PLAN = plan.Plan(steps=[STEP], notes="one step is enough")
CHECK = task.CheckResult(command="make test", exit_code=2, passed=False, output="1 failed", duration_ms=1_500)
REPORT = trajectory.StepReport(
    step_id="fix", title="Fix the parser", summary="done", evidence=("pytest: 12 passed",), artifacts=("out.txt",)
)
REPLY = model.ModelReply(
    text="I run the tests.",
    tool_calls=(CALL,),
    finish_reason="tool_calls",
    usage=USAGE,
    model="m-1",
    tier="full",
    latency_ms=420,
    engine="vllm-0",
    weight_version="w7",
    prompt_token_ids=(1, 2),
    completion_token_ids=(3,),
    logprobs=(-0.5,),
)
BAD = model.BadReply(code=ErrorCode.NO_TOOL_CALL, detail="say it with a tool call")
INPUTS = trajectory.TurnInputs(
    at=AT, mail=(MAIL,), control_seq=2, tokens_left=90_000, cost_left_micro=4_000_000, turns_left=49, deadline_at=AT
)
AGENT = run.AgentRef(tenant_id="default", place=PLACE, round=2)

STORED: list[BaseModel] = [
    artifact.Artifact(
        id="art_1",
        task_id=TASK_ID,
        step_id="fix",
        path="out/report.md",
        sha256=SHA,
        bytes=12,
        media_type="text/markdown",
        created_at=AT,
    ),
    artifact.UploadedFile(id="file_12345678", name="repo.tar.gz", sha256=SHA, bytes=12, created_at=AT),
    BLOB,
    FAULT,
    MAIL,
    PLACE,
    REPLY,
    BAD,
    RESULT,
    CHECK,
    REPORT,
    INPUTS,
    USAGE,
    CALL,
    plan.StoredPlan(revision=2, plan=PLAN),
    trajectory.Attempt(k=1, reply=REPLY, bad=BAD),
    trajectory.Turn(round=2, turn=3, inputs=INPUTS, attempts=(), results=(RESULT, None), failed=FAULT),
    trajectory.Brief(
        tenant_id="default",
        place=PLACE,
        goal="Repair the parser.",
        instruction_sha256=SHA,
        tier="auto",
        recording="parser",
        task_checks=("make test",),
        limits=LIMITS,
        listing=(sandbox.FileEntry(path="src/parser.py", bytes=900),),
        listing_total=40,
        plan=PLAN,
        step=STEP,
        reports=(REPORT,),
        checks=(CHECK,),
        findings=("the test still fails",),
        sandbox_id="sbx_1",
        sandbox_fence=1,
        network=("pypi.org",),
        template="standard_dev",
    ),
    task.TaskSpec(
        instruction="Repair the parser.",
        repo=task.Repo(file_id="file_12345678"),
        files=[task.InputFile(file_id="file_12345678", path="data/in.csv")],
        tier="replay",
        recording="parser",
        checks=["make test"],
        limits=LIMITS,
        sandbox=sandbox.SandboxLimits(memory_mb=512, cpu=1.5, disk_mb=1_024, pids=100, best_effort=True),
        network=network.NetworkPolicy(allow=("pypi.org", "*.example.org:443")),
        template="standard_dev",
        metadata={"ticket": "17"},
    ),
    approval.Approval(
        id="appr_1",
        task_id=TASK_ID,
        agent_id="agent_1",
        step_id="fix",
        round=2,
        turn=3,
        call_index=1,
        call_key="k/c1",
        kind="unknown_outcome",
        tool="shell",
        arguments='{"command": "make"}',
        arguments_sha256=SHA,
        state=approval.ApprovalState.DENIED,
        requested_at=AT,
        expires_at=AT,
        decided_at=AT,
        actor="key:key_1",
        note="not now",
    ),
    run.TaskRef(tenant_id="default", task_id=TASK_ID, epoch=1),
    run.TaskRun(
        tenant_id="default",
        task_id=TASK_ID,
        epoch=1,
        cursors=run.TaskCursors(revision=2, planned=True, findings=AGENT, done=("look",), rounds={"look": 1, "fix": 2}),
    ),
    AGENT,
    run.TaskStart(limits=LIMITS, has_checks=True, deadline_s=3_600.0, cancel_requested=True),
    run.PlanShape(revision=2, steps=(run.StepShape(id="fix", depends_on=("look",), resources=("path:src",)),)),
    run.BurstEnd(reason=run.BurstReason.ENGINE_UNAVAILABLE, turns=7, control_seq=2, retry_after_s=5.0, error=FAULT),
    run.AgentOutcome(reason=run.BurstReason.FINISHED, verdict="revise", error=FAULT),
    run.TaskEnd(stop_reason=task.StopReason.FAILED_CHECKS, error=FAULT),
]

EVENTS: list[event.EventData] = [
    event.TaskCreated(instruction="Repair the parser.", tier="auto"),
    event.TaskStarted(),
    event.TaskStatusChanged(status=task.TaskStatus.WAITING, waiting_for="engine"),
    event.TaskCompleted(summary="repaired", usage=USAGE),
    event.TaskFailed(stop_reason=task.StopReason.BUDGET, error=FAULT, usage=USAGE),
    event.TaskCancelled(usage=USAGE),
    event.TaskStalled(detail="its workflow is gone"),
    event.PlanSubmitted(revision=1, steps=(LINE,), notes="n"),
    event.PlanRevised(revision=2, steps=(LINE,), notes="n"),
    event.PlanApproved(revision=2, actor="ann"),
    event.StepStarted(title="Fix the parser", round=1),
    event.StepCompleted(round=1, summary="done"),
    event.StepFailed(round=2, stop_reason=task.StopReason.REJECTED, error=FAULT),
    event.TurnStarted(round=1),
    event.TurnCompleted(round=1, calls=2),
    event.TurnFailed(round=1, error=FAULT),
    event.ModelCalled(key="k/m1", tier="fast", k=1),
    event.ModelCompleted(key="k/m1", model="m-1", text="I run it.", calls=("shell",), usage=USAGE, latency_ms=420),
    event.ModelFailed(key="k/m1", error=FAULT),
    event.ModelFallback(key="k/m1", from_tier="fast", to_tier="full", code=ErrorCode.EMPTY_REPLY),
    event.ToolCalled(key="k/c0", tool="shell", arguments="{}"),
    event.ToolCompleted(key="k/c0", tool="shell", exit_code=0, content="ok", duration_ms=15),
    event.ToolFailed(key="k/c0", tool="read_file", code=ErrorCode.FILE_NOT_FOUND, content="no such file"),
    event.ToolUnknown(key="k/c0", tool="shell"),
    event.ExecStarted(exec_id="exec_1", command="make", purpose="check"),
    event.ExecOutput(exec_id="exec_1", text="…", blob=BLOB),
    event.ExecExited(exec_id="exec_1", exit_code=137, reason="killed", output="…", duration_ms=9, purpose="check"),
    event.ExecLost(exec_id="exec_1"),
    event.ReviewStarted(round=1),
    event.ReviewSubmitted(round=1, verdict="revise", findings=("f",), evidence=("e",)),
    event.MessageSent(message_id="msg_1", sender="ann", to="agent_1", text="faster"),
    event.MessageDelivered(message_id="msg_1"),
    event.ApprovalRequested(approval_id="apr_1", key="k/c0", arguments_sha256=SHA),
    event.ApprovalDecided(approval_id="apr_1", decision="deny", actor="ann"),
    event.ApprovalExpired(approval_id="apr_1"),
    event.SteerApplied(message_id="msg_1"),
    event.CheckpointCreated(checkpoint_id="chk_1", blob=BLOB),
    event.ArtifactCreated(artifact_id="art_1", path="out.txt", sha256=SHA, bytes=12),
    event.SandboxClaimed(sandbox_id="sbx_1", backend="namespace", purpose="clean_copy"),
    event.SandboxSnapshot(sandbox_id="sbx_1", blob=BLOB),
    event.SandboxRestored(sandbox_id="sbx_1"),
    event.SandboxLost(sandbox_id="sbx_1", detail="host gone"),
    event.SandboxReleased(sandbox_id="sbx_1"),
    event.SandboxDenied(
        sandbox_id="sbx_1", detail="egress", exec_id="exec_1", host="evil.org", port=443, reason="host_not_allowed"
    ),
    event.LockWaiting(resource="path:src", holder="fix"),
    event.LockAcquired(resource="path:src", fence=2),
    event.LockLost(resource="path:src"),
    event.LockReleased(resource="path:src"),
    event.BudgetWarned(limit="tokens", used=80, allowed=100),
    event.BudgetExhausted(limit="tokens", used=100, allowed=100),
    event.AgentStarted(role=ids.Role.REVIEWER, step="final", round=1),
    event.AgentWaiting(waiting_for="engine", retry_after_s=5.0),
    event.AgentFinished(role=ids.Role.REVIEWER, step="final", round=1, reason="finished", error=FAULT),
]


def samples() -> dict[str, BaseModel]:
    """Every sample by the name of its golden file."""
    named = {type(stored).__name__: stored for stored in STORED}
    for data in EVENTS:
        named[f"event.{data.type}"] = event.Event(
            task_id=TASK_ID, seq=7, at=AT, agent_id="agent_1", step_id="fix", turn=3, data=data
        )
    return named
