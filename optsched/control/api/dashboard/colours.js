/* Eight hues that stay apart for colour-blind eyes, times six patterns: a job keeps its hue, and jobs that hold GPUs at once share no mark before all 48 are taken. */
const HUES = 8, PATTERNS = 6;
const marks = new Map();                      // of jobs that are on the page

function hashed(text) {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  return (hash ^ hash >>> 15) >>> 0;
}

/** Give marks to these jobs, those that run now first, and forget all others. */
function markJobs(running, others) {
  const all = new Set([...running, ...others]);
  for (const job of marks.keys()) if (!all.has(job)) marks.delete(job);
  const taken = new Set(running.map(job => marks.get(job)).filter(Boolean));
  for (const job of running) {
    if (marks.has(job)) continue;
    const hash = hashed(job), own = hash % HUES * PATTERNS, first = (hash >>> 8) % PATTERNS;
    let slot = own + first;
    for (let step = 0; step < HUES * PATTERNS && taken.has(slot); step++) {
      slot = (own + Math.floor(step / PATTERNS) * PATTERNS + (first + step) % PATTERNS) % (HUES * PATTERNS);
    }
    marks.set(job, slot);
    taken.add(slot);
  }
}

function mark(job) {
  if (job === null || job === undefined) return {hue: "x", pattern: 0};
  const hash = hashed(job), slot = marks.get(job) ?? hash % HUES * PATTERNS + (hash >>> 8) % PATTERNS;
  return {hue: Math.floor(slot / PATTERNS), pattern: slot % PATTERNS};
}
const markClass = job => { const {hue, pattern} = mark(job); return `h${hue} p${pattern}`; };

let palette = null;                           // the colours of the theme, as a canvas takes them
const fills = new Map();
function colour(name) {
  palette ??= getComputedStyle(document.documentElement);
  return palette.getPropertyValue(`--${name}`).trim();
}
function forgetColours() { palette = null; fills.clear(); }

/** Return how a canvas fills a mark. */
function fill(context, {hue, pattern}) {
  const key = `${hue}.${pattern}`;
  if (fills.has(key)) return fills.get(key);
  const tile = document.createElement("canvas"), size = 8;
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  pen.fillStyle = hue === "x" ? colour("muted") : colour(`c${hue}`);
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = pen.fillStyle = colour("shade");
  pen.lineWidth = 1.3;
  const lines = {1: [[-2, 2, 2, -2], [0, 8, 8, 0], [6, 10, 10, 6]], 2: [[-2, 6, 2, 10], [0, 0, 8, 8], [6, -2, 10, 2]], 3: [[0, 4, 8, 4]], 4: [[4, 0, 4, 8]]}[pattern] ?? [];
  pen.beginPath();
  for (const [x, y, to_x, to_y] of lines) { pen.moveTo(x, y); pen.lineTo(to_x, to_y); }
  pen.stroke();
  if (pattern === 5) { pen.arc(4, 4, 1.5, 0, 7); pen.fill(); }
  fills.set(key, context.createPattern(tile, "repeat"));
  return fills.get(key);
}

/** Return black or white, whichever is easier to read on a colour `#rrggbb`. */
function inkOn(hex) {
  const parts = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] > 0.179 ? "#000" : "#fff";
}

let lit = null;                               // the job that is pointed at: it stands out everywhere
function light(job) {
  if (job === lit) return;
  lit = job;
  for (const element of document.querySelectorAll(".gpu[data-job], #jobs tbody tr")) element.classList.toggle("lit", job !== null && element.dataset.job === job);
  drawTimeline();
}
