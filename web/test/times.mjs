// Measures in a real browser how soon pages show what they are for. Input: CONSOLE, the address of an agent with a generated
// history; HOURS, how long that is; ROUNDS, how often each page is loaded, into an empty cache; CHROMIUM, the program. Output:
// a table of medians, and what a first visit loads. It judges no times, which depend on the machine: exit code 1 means that
// a page showed nothing, or that a first visit loads too much. internal/console/browser calls it.
import { chromium } from "playwright-core";

const base = process.env.CONSOLE, hours = process.env.HOURS ?? "24", rounds = Number(process.env.ROUNDS ?? 1);
const patience = 120_000, limit = 100_000; // milliseconds; bytes, compressed
const flow = "/flow/tcp/[2001:db8:2::80]:40000/[2001:db8:2::5432]:5432";
const day = `since=${hours}h`;

// What is waited for, on which page.
const marks = [
	{ name: "first verdict", path: "/", ready: ".verdict h2" },
	{ name: "traffic of the last hour", path: "/", ready: ".traffic canvas" },
	{ name: `Explore, stack, ${hours} h`, path: `/explore?${day}`, ready: "tfoot tr" },
	{ name: `Explore, period before, ${hours} h`, path: `/explore?${day}&show=lines&before=true`, ready: "tfoot tr" },
	{ name: `Explore, both directions, ${hours} h`, path: `/explore?${day}&by=conversation&both=true`, ready: "tfoot tr" },
	{ name: `Explore, heat, ${hours} h`, path: `/explore?${day}&by=src/24/64,dport&show=heat`, ready: "tfoot tr" },
	{ name: `Explore, Sankey, ${hours} h`, path: `/explore?${day}&by=src/24/64,dst,dport&show=sankey`, ready: "tfoot tr" },
	{ name: `Explore, matrix, ${hours} h`, path: `/explore?${day}&by=src,dst&show=matrix&limit=20`, ready: ".matrix td button" },
	{ name: `Flow, ${hours} h`, path: `${flow}?${day}`, ready: ".lane .hop" },
	{ name: `Map, ${hours} h`, path: `/map?${day}`, ready: ".topology .node" },
	{ name: "Hosts", path: "/hosts", ready: "tbody tr" },
	{ name: "Gate", path: "/gate", ready: "tbody tr" },
];

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });

// One window for all: to open one takes Chromium longer than most pages do.
const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage();
const devtools = await page.context().newCDPSession(page);
await devtools.send("Page.enable");

// watch runs in a page from its start, and notes when it shows what is waited for.
function watch(selector) {
	const look = () => { if (!globalThis.shownAt && document.querySelector(selector)) globalThis.shownAt = performance.now(); };
	new MutationObserver(look).observe(document, { childList: true, subtree: true });
}

// load loads a page into an empty cache: when the page shows what is waited for, in milliseconds since its address was
// entered, and how many bytes of script and style that took.
async function load({ path, ready }) {
	await page.goto("about:blank");
	await devtools.send("Network.clearBrowserCache");
	const script = await devtools.send("Page.addScriptToEvaluateOnNewDocument", { source: `(${watch})(${JSON.stringify(ready)})` });
	await page.goto(base + path, { timeout: patience });
	await devtools.send("Page.removeScriptToEvaluateOnNewDocument", script);
	await page.waitForFunction(() => globalThis.shownAt, null, { timeout: patience });
	return await page.evaluate(() => {
		const loaded = performance.getEntriesByType("resource");
		return {
			at: globalThis.shownAt, bytes: loaded.filter((r) => r.name.includes("/assets/")).reduce((n, r) => n + r.encodedBodySize, 0),
			steps: loaded.map((r) => `${r.name.replace(location.origin, "").slice(0, 90)}: ${Math.round(r.startTime)} to ${Math.round(r.responseEnd)} ms, ${r.encodedBodySize} bytes`),
		};
	});
}

let failed = 0;
for (const m of marks) {
	const times = [], last = { bytes: 0, steps: [] };
	for (let i = 0; i < rounds; i++) {
		const found = await load(m).catch((e) => { failed++; console.log(`${m.name}: ${e.message.split("\n")[0]}`); });
		if (!found) continue;
		times.push(found.at);
		Object.assign(last, found);
	}
	times.sort((a, b) => a - b);
	console.log(`${m.name.padEnd(34)} ${times.length ? Math.round(times[times.length >> 1]) : "-"} ms (${times.map(Math.round).join(", ")}), ${last.bytes} bytes of script and style`);
	if (process.env.STEPS) console.log(last.steps.map((s) => `    ${s}`).join("\n"));
	if (last.bytes > limit || last.bytes < limit / 10) {
		failed++;
		console.log(`${m.name}: a first visit loads ${last.bytes} bytes, not at most ${limit}`);
	}
}
await browser.close();
process.exit(failed ? 1 : 0);
