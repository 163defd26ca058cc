/* Why a job is where it is, and what can be done with it. */
let opened = null, returnTo = null, viewsOnly = true;

async function openPanel(job) {
  if (opened === null) returnTo = document.activeElement;
  opened = job;
  const close = el("button", {type: "button", class: "close", "aria-label": "Close"}, "✕");
  close.onclick = closePanel;
  at("panel").replaceChildren(close, el("h2", {id: "panel-title"}, job), el("p", {class: "muted"}, "asking …"));
  at("panel").hidden = false;
  document.body.classList.add("panelled");
  close.focus();
  selectRow();
  await refreshPanel();
}

function closePanel() {
  opened = null;
  at("panel").hidden = true;
  document.body.classList.remove("panelled");
  selectRow();
  if (returnTo?.isConnected) returnTo.focus();
}

function selectRow() {
  for (const row of document.querySelectorAll("#jobs tbody tr")) row.setAttribute("aria-selected", String(row.dataset.job === opened));
}

async function refreshPanel(said = "") {
  const name = opened;
  if (name === null) return;
  const query = new URLSearchParams({all: "true", state: STATUSES.join(), name, limit: 1});
  const [why, page] = await Promise.all([
    ask(`/v1/jobs/${encodeURIComponent(name)}/explain`).catch(error => { if (error instanceof Refusal && error.status !== 401) return {sentences: [error.message]}; throw error; }),
    ask(`/v1/jobs?${query}`).catch(error => { if (error instanceof Refusal && error.status !== 401) return {jobs: []}; throw error; })]);
  if (name !== opened) return;
  showPanel(page.jobs[0], why.sentences, said);
}

function showPanel(job, sentences, said) {
  const panel = at("panel"), focused = document.activeElement?.dataset?.change;
  const facts = job ? [
    ["State", job.status], ["User", job.user], ["Tenant", job.tenant], ["GPUs", gpus(job) + (job.gpu_type ? ` · ${job.gpu_type}` : "")],
    ["Submitted", instant(job.submit_s, now_s)], ["Waited", human(job.waited_s)], ["Ran", human(job.ran_s)],
    ["To go", job.remaining_s === null ? "" : human(job.remaining_s) + (job.estimate ? ` (${job.estimate})` : "")],
    ["Steps", job.step === null ? "" : job.step.toLocaleString("en") + (job.total_steps ? ` of ${job.total_steps.toLocaleString("en")}` : "")],
    ["Starts", forecast(job, "start")], ["Ends", forecast(job, "end")], ["Forecast", job.forecast],
    ["Attempts", job.attempts ? `${job.attempts}, preempted ${job.preemptions} times, failed ${job.failures} times` : ""],
    ["Priority", `${job.priority}, weight ${job.weight}`], ["Deadline", job.deadline_s === null ? "" : instant(job.deadline_s, now_s)], ["After", job.after.join(", ")],
  ].filter(([, value]) => value) : [];
  const isPast = sentence => /^Attempt \d/.test(sentence), reasons = sentences.filter(sentence => !isPast(sentence)), past = sentences.filter(isPast);
  const heading = el("h2", {id: "panel-title"});
  if (job) heading.append(el("i", {class: `swatch ${markClass(job.id)}`}));
  heading.append(el("bdi", {}, opened));
  panel.replaceChildren(panel.firstElementChild, heading, ...(job && !viewsOnly && job.finished_s === null ? [actions(job)] : []),
    ...(said ? [el("p", {class: "said", role: "alert"}, said)] : []),
    ...paragraphs(reasons),
    el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, short(value))])),
    ...paragraphs(past),
    ...(job?.command ? [el("pre", {"aria-label": "Command", tabindex: "0"}, job.command.slice(0, 4000))] : []));
  if (focused) panel.querySelector(`[data-change="${focused}"]`)?.focus();
}

const MOST_SENTENCES = 40;
const paragraphs = sentences => [...(sentences.length > MOST_SENTENCES ? [el("p", {class: "muted"}, `The last ${MOST_SENTENCES} of ${sentences.length}:`)] : []), ...sentences.slice(-MOST_SENTENCES).map(sentence => el("p", {}, sentence.slice(0, 4000)))];

/** Return the buttons of a job; what ends it asks once more. */
function actions(job) {
  const button = (change, title) => {
    const made = el("button", {type: "button", "data-change": change, ...(change === "cancel" ? {class: "danger"} : {})}, title);
    made.onclick = () => {
      if (change === "cancel" && !made.dataset.sure) { made.dataset.sure = "yes"; made.textContent = "Cancel for good: press again"; return; }
      made.disabled = true;
      void act(job.id, change);
    };
    return made;
  };
  return el("p", {class: "buttons"}, job.status === "held" || job.held ? button("release", "Release") : button("hold", "Hold"), button("cancel", "Cancel job"));
}

async function act(job, change) {
  let said = "";
  try { await ask(`/v1/jobs/${encodeURIComponent(job)}/${change}`, "POST"); }
  catch (error) { said = error.message; }
  if (job === opened) await refreshPanel(said).catch(() => {});
  await refreshJobs().catch(() => {});
}
