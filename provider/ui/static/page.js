"use strict";
// Refreshing, requests to Airflow, and charts. Without this file everything can still be read.
(() => {
  const live = document.getElementById("live");
  const announcer = document.getElementById("announce");
  const pause = document.getElementById("pause");
  const updated = document.getElementById("updated");
  let etag = null;

  const busy = () => Boolean(live.querySelector("details.action[open]")) || live.contains(document.activeElement) && document.activeElement.matches("input, select");

  const enable = (root) => {
    for (const button of root.querySelectorAll("form.request button[type=submit]:not([data-refused])")) button.disabled = false;
  };

  let said = live.querySelector("[data-announce]")?.textContent.trim();
  const announce = () => {
    const sentence = live.querySelector("[data-announce]")?.textContent.trim();
    if (sentence && sentence !== said) announcer.textContent = sentence;
    said = sentence;
  };

  const note = (text) => { if (updated) updated.textContent = text; };
  const clock = () => new Date().toISOString().slice(11, 19);

  // Details that a reader has opened or closed stay so.
  const shape = () => new Map([...live.querySelectorAll("details[id], section[aria-labelledby] > details")].map((each, at) => [each.id || at, each.open]));

  if (live.hasAttribute("hx-get")) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      const paused = pause.getAttribute("aria-pressed") !== "true";
      pause.setAttribute("aria-pressed", String(paused));
      pause.textContent = paused ? "Resume updates" : "Pause updates";
    });
    document.body.addEventListener("htmx:beforeRequest", (event) => {
      if (pause.getAttribute("aria-pressed") === "true" || document.hidden || busy()) event.preventDefault();
    });
    let before = null;
    document.body.addEventListener("htmx:beforeSwap", (event) => {
      const tag = event.detail.xhr.getResponseHeader("ETag");
      if (event.detail.xhr.status !== 200 || busy() || (tag && tag === etag)) event.detail.shouldSwap = false;
      if (event.detail.xhr.status === 200) note(`Updated ${clock()}.`);
      etag = tag;
      before = { shape: shape(), focus: document.activeElement?.id, scrolls: [...live.querySelectorAll(".scroll")].map((each) => each.scrollLeft) };
    });
    document.body.addEventListener("htmx:afterSwap", () => {
      enable(live);
      [...live.querySelectorAll("details[id], section[aria-labelledby] > details")].forEach((each, at) => {
        const open = before?.shape.get(each.id || at);
        if (open !== undefined) each.open = open;
      });
      live.querySelectorAll(".scroll").forEach((each, at) => { each.scrollLeft = before?.scrolls[at] ?? 0; });
      if (before?.focus) document.getElementById(before.focus)?.focus({ preventScroll: true });
      announce();
      draw();
    });
    for (const failure of ["htmx:responseError", "htmx:sendError"]) {
      document.body.addEventListener(failure, (event) => {
        const status = event.detail.xhr?.status;
        note(status === 401 ? "Not updated: your session has ended; reload the page." : `Not updated since ${clock()}: ${status ? `the server answered ${status}` : "the server does not answer"}.`);
      });
    }
  }

  // A page that cannot be shown, such as that of a journal that no process has made yet, is asked for until it can.
  if (live.hasAttribute("data-retry")) {
    setInterval(async () => {
      if (document.hidden) return;
      try {
        if ((await fetch(location.href)).ok) location.reload();
      } catch {
        // The server does not answer either: the next time, perhaps.
      }
    }, 5000);
  }

  // Airflow's frame lets no link of this page lead out of it, or to a new tab. A link of the page around it may.
  const follow = (event) => {
    const link = event.target.closest("a[target=_top]");
    if (!link || window.top === window || event.button > 1) return;
    let around;
    try {
      around = window.top.document;
    } catch {
      return; // The page of another origin.
    }
    event.preventDefault();
    const anchor = around.createElement("a");
    anchor.href = link.href;
    anchor.target = event.button === 1 || event.ctrlKey || event.metaKey || event.shiftKey ? "_blank" : "_self";
    anchor.rel = "noopener";
    around.body.append(anchor);
    anchor.click();
    anchor.remove();
  };
  document.body.addEventListener("click", follow);
  document.body.addEventListener("auxclick", follow);

  // What an input holds, as the body needs it; undefined for an empty one.
  const valueOf = (input) => {
    const text = input.value.trim();
    if (!text) {
      if (input.required) throw new Error(`${input.closest("label").firstChild.textContent.trim()} is needed.`);
      return undefined;
    }
    const wrong = () => new Error(`${input.closest("label").firstChild.textContent.trim()} cannot be ${text}.`);
    if (input.dataset.kind === "text") return text;
    if (input.dataset.kind === "ids") {
      const parts = text.split(/[\s,]+/).filter(Boolean);
      if (!parts.every((part) => /^\d{1,10}$/.test(part))) throw wrong();
      return [...new Set(parts.map(Number))];
    }
    if (input.dataset.kind === "whole") {
      if (!/^\d{1,10}$/.test(text)) throw wrong();
      return Number(text);
    }
    if (!/^\d{1,9}(\.\d+)?$/.test(text)) throw wrong();
    return Math.round(Number(text) * 1e6);
  };

  const bodyOf = (form) => {
    const body = JSON.parse(form.dataset.body);
    for (const input of form.querySelectorAll("input[name]")) {
      const value = valueOf(input);
      if (value === undefined) continue;
      const path = input.name.split(".");
      const last = path.pop();
      path.reduce((at, name) => at[name], body)[last] = value;
    }
    return body;
  };

  const say = (form, text, kind, link) => {
    const outcome = form.querySelector(".outcome");
    outcome.className = `outcome ${kind}`;
    outcome.textContent = text;
    if (link) {
      const anchor = document.createElement("a");
      anchor.href = link;
      anchor.target = "_top";
      anchor.textContent = "See the run in Airflow";
      outcome.append(" ", anchor);
    }
  };

  const reason = async (answer) => {
    try {
      const { detail } = await answer.json();
      return typeof detail === "string" ? detail : JSON.stringify(detail);
    } catch {
      return answer.statusText;
    }
  };

  document.body.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.matches("form.request")) return;
    event.preventDefault();
    const button = form.querySelector("button[type=submit]");
    let body;
    try {
      body = bodyOf(form);
    } catch (error) {
      say(form, error.message, "failed");
      return;
    }
    button.disabled = true;
    try {
      const answer = await fetch(form.dataset.url, {
        method: form.dataset.method,
        credentials: "same-origin",
        headers: { "Content-Type": "application/json", Accept: "application/json" },
        body: JSON.stringify(body),
      });
      if (!answer.ok) {
        say(form, `Airflow refused (${answer.status}): ${await reason(answer)}`, "failed");
        button.disabled = false;
        return;
      }
      const run = (await answer.json()).dag_run_id;
      say(form, run ? `Requested as the run ${run}.` : "Answered.", "sent", run && form.dataset.follow ? form.dataset.follow + encodeURIComponent(run) : null);
    } catch (error) {
      say(form, `Airflow did not answer: ${error.message}`, "failed");
      button.disabled = false;
    }
  });

  const CHARTS = [
    ["Partitions", ["under_replicated_partitions", "under_min_isr_partitions", "offline_partitions", "reassigning_partitions", "rack_violations"]],
    ["Brokers and disks", ["failed_brokers", "failed_log_dirs", "cordoned_brokers", "demoted_brokers"]],
    ["Imbalance", ["replica_imbalance", "leader_imbalance"]],
  ];

  const charts = document.getElementById("charts");
  let drawn = [];

  // The charts stay as they are until the values of the new ones have come.
  const draw = async () => {
    if (!charts || !window.uPlot) return;
    const answer = await fetch(charts.dataset.url, { credentials: "same-origin" }).catch(() => null);
    if (!answer?.ok) return;
    const { at_s, values } = await answer.json();
    drawn.forEach((each) => each.destroy());
    drawn = [];
    charts.replaceChildren();
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const strokes = ["--bad", "--warn", "--accent", "--ok"];
    for (const [title, names] of CHARTS) {
      const known = names.filter((name) => values[name]?.some((value) => value !== null));
      if (!known.length) continue;
      const box = document.createElement("div");
      box.className = "chart";
      box.setAttribute("aria-hidden", "true"); // the table below says the same
      const heading = document.createElement("p");
      heading.textContent = title;
      box.append(heading);
      charts.append(box);
      const axis = { stroke: color("--dim"), grid: { stroke: color("--rule") }, ticks: { stroke: color("--rule") } };
      drawn.push(new uPlot({
        width: Math.max(280, Math.min(900, charts.clientWidth)),
        height: 180,
        tzDate: (ts) => uPlot.tzDate(new Date(ts * 1e3), "Etc/UTC"),
        axes: [axis, { ...axis, size: 60 }],
        scales: { y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high)] } },
        series: [{}, ...known.map((name, at) => ({ label: name.replaceAll("_", " "), stroke: color(strokes[at]), width: 1.5, spanGaps: false }))],
      }, [at_s, ...known.map((name) => values[name])], box));
    }
  };

  enable(document);
  if (charts) {
    // In the locale C, Chromium has a language that Intl refuses. uPlot, which is loaded after this file, takes it as it is.
    try {
      new Intl.NumberFormat(navigator.language);
    } catch {
      Object.defineProperty(navigator, "language", { value: "en-US" });
    }
    document.addEventListener("DOMContentLoaded", draw);
  }
})();
