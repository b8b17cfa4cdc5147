// Tests the console in a real browser. Input: CONSOLE, the address of an agent with a generated hour; CONTROL, which
// ends an interval when it is asked for /tick; ROUNDS of INTERVALS,
// one every PACE milliseconds, for which a page is followed; CHROMIUM, the program; SHOTS, a folder for pictures (optional). Output:
// a line for each check; exit code 1 if one failed. internal/console/browser calls it.
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const base = process.env.CONSOLE, control = process.env.CONTROL, shots = process.env.SHOTS;
const axe = readFileSync(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const only = process.env.ONLY; // a word of the names of the checks to run; empty: all
const patience = 20_000; // milliseconds, for anything: the machine may be busy

const flowPath = "/flow/tcp/[2001:db8:2::80]:40000/[2001:db8:2::5432]:5432";
// Each page, and what it shows once it is complete.
const pages = [
	{ name: "now", path: "/", ready: ".verdict .spark path" },
	{ name: "explore", path: "/explore?show=stack", ready: "tfoot tr" },
	{ name: "lines", path: "/explore?where=port+5432&by=service&sort=server&show=lines&before=true", ready: "tbody tr" },
	{ name: "heat", path: "/explore?by=src/24/64,dport&show=heat", ready: "tbody tr" },
	{ name: "sankey", path: "/explore?by=src/24/64,dst,dport&show=sankey&where=not+port+873", ready: "tbody tr" },
	{ name: "matrix", path: "/explore?by=src,dst&show=matrix&limit=20", ready: ".matrix td button" },
	{ name: "both", path: "/explore?by=conversation&both=true", ready: "tbody tr" },
	{ name: "flow", path: flowPath, ready: ".lane .hop" },
	{ name: "traced", path: "/flow/tcp/[2001:db8:2::80]:40100/[2001:db8:2::6379]:6379", ready: ".nodes .longest" },
	{ name: "map", path: "/map", ready: ".topology .node" },
	{ name: "hosts", path: "/hosts", ready: "tbody tr" },
	{ name: "gate", path: "/gate", ready: "tbody tr" },
	{ name: "docs", path: "/docs?find=rtt", ready: ".entries div" },
];

let failed = 0;
function report(what, problems) {
	if (problems.length) failed++;
	console.log(`${problems.length ? "FAIL" : "ok"} ${what}`);
	for (const p of problems) console.log(`    ${p}`);
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });

// A window takes Chromium more time than most pages do: there is one for all that needs none of its own.
const viewport = { width: 1280, height: 900 };
let shared;

async function newWindow(options) {
	const context = await browser.newContext({ viewport, ...options });
	const window = { context, page: await context.newPage(), wrong: [] };
	window.page.setDefaultTimeout(patience);
	window.page.on("pageerror", (e) => window.wrong.push(`error: ${e.message} ${e.stack.split("\n")[1]}`));
	window.page.on("console", (m) => { if (m.type() === "error" && !options?.refused) window.wrong.push(`console: ${m.text()}`); });
	window.page.on("request", (r) => { if (!r.url().startsWith(base) && !/^(data|blob|about):/.test(r.url())) window.wrong.push(`asks elsewhere: ${r.url()}`); });
	return window;
}

// open shows a page and gathers what goes wrong in it; with options, in a window, and with a cache, of its own.
async function open(path, ready, options) {
	const window = options ? await newWindow(options) : shared ??= await newWindow();
	const { context, page } = window, wrong = window.wrong = [];
	await page.setViewportSize(viewport);
	if (options?.before) await options.before(page);
	await page.goto(base + path);
	if (ready) await page.waitForSelector(ready);
	// The next page finds nothing of this one, which stops.
	const leave = async () => {
		await page.evaluate(() => localStorage.clear());
		await page.mouse.move(0, 0);
		await page.goto("about:blank");
	};
	return { page, wrong, close: options ? () => context.close() : leave };
}

async function check(what, test) {
	if (only && !what.includes(only)) return;
	try {
		report(what, (await test()) ?? []);
	} catch (e) {
		report(what, [e.message.split("\n")[0]]);
	}
}

// findings are what axe has to say, of colours alone or of everything, and a page that is wider than the screen.
async function findings(page, colours = false) {
	if (!await page.evaluate(() => "axe" in globalThis)) await page.evaluate(axe);
	const options = { resultTypes: ["violations"], ...(colours && { runOnly: { type: "rule", values: ["color-contrast", "link-in-text-block"] } }) };
	const found = await page.evaluate((o) => globalThis.axe.run(document, o), options);
	const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
	const list = found.violations.map((v) => `axe ${v.id}: ${v.help}: ${v.nodes.slice(0, 2).map((n) => n.html.slice(0, 140)).join(" | ")}`);
	if (wide > 0) list.push(`${wide} px wider than the screen`);
	return list;
}

// contrasts are those of the colours of a canvas with its background, the most frequent first: axe sees none of it.
function contrasts(page) {
	return page.evaluate(() => [...document.querySelectorAll("canvas")].map((canvas) => {
		const seen = new Map(), data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
		for (let i = 0; i < data.length; i += 4) {
			if (data[i + 3] > 250) {
				const c = `${data[i]},${data[i + 1]},${data[i + 2]}`;
				seen.set(c, (seen.get(c) ?? 0) + 1);
			}
		}
		const light = (c) => c.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
		const ground = light(getComputedStyle(canvas.closest(".card")).backgroundColor.match(/\d+/g).slice(0, 3).map(Number));
		const all = [...seen].filter(([, n]) => n > 20).map(([c]) => light(c.split(",").map(Number))).map((l) => (Math.max(l, ground) + 0.05) / (Math.min(l, ground) + 0.05));
		return { most: Math.max(0, ...all), width: canvas.width };
	}));
}

// Each page is loaded once, and has to follow when theme and width change. A theme has colours and no more.
for (const p of pages.filter((p) => !only || only.includes(p.name))) {
	const { page, wrong, close } = await open(p.path);
	for (const [colorScheme, width, colours] of [["light", 1280], ["dark", 1280, true], ["dark", 360], ["light", 360, true]]) {
		await check(`${p.name}, ${colorScheme}, ${width} px`, async () => {
			await page.emulateMedia({ colorScheme });
			await page.setViewportSize({ width, height: width === 360 ? 760 : 900 });
			await page.waitForSelector(p.ready);
			await page.waitForFunction((t) => document.documentElement.dataset.theme === t, colorScheme);
			await page.evaluate(() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))); // charts are drawn again
			const drawn = await contrasts(page);
			const found = drawn.filter((c) => c.most < 4.5).map((c) => `a chart's best contrast is ${c.most.toFixed(1)}: its axes cannot be read`);
			found.push(...await findings(page, colours), ...wrong.splice(0));
			if (shots && (width === 1280 || p.name === "now")) await page.screenshot({ path: `${shots}/${p.name}-${colorScheme}${width === 360 ? "-narrow" : ""}.png` });
			return found;
		});
	}
	await close();
}

await check("a cold load loads little, and shows a verdict", async () => {
	const began = Date.now();
	const { page, wrong, close } = await open("/", ".verdict", {}); // an empty cache
	const took = Date.now() - began;
	const bytes = await page.evaluate(() => performance.getEntriesByType("resource").filter((r) => r.name.includes("/assets/")).reduce((n, r) => n + r.encodedBodySize, 0));
	console.log(`    ${took} ms, ${bytes} bytes of script and style`);
	await close();
	return [...wrong, ...(bytes > 100_000 || bytes < 10_000 ? [`${bytes} bytes`] : [])];
});

await check("everything by keyboard alone", async () => {
	const { page, wrong, close } = await open("/", ".verdict", { permissions: ["clipboard-read", "clipboard-write"] });
	const key = (k) => page.keyboard.press(k);
	const expect = (what, ok) => { if (!ok) wrong.push(`${what}: ${page.url()}`); };
	await key("Tab");
	expect("the first Tab skips to the content", (await page.evaluate(() => document.activeElement.className)) === "skip");
	await key("g");
	await key("e");
	await page.waitForSelector("tbody tr");
	await key("/");
	await page.keyboard.type("tcp and dpo");
	await page.waitForSelector("#choices li:has-text('dport')");
	await key("Tab"); // takes the first choice
	await page.keyboard.type("5432");
	await key("Enter");
	await page.waitForURL(/where=tcp\+and\+dport\+5432/);
	await key("Escape");
	await key("v");
	await page.waitForURL(/show=lines/);
	await key("b");
	await page.waitForURL(/both=true/);
	await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
	await key("c");
	await page.waitForFunction(async () => (await navigator.clipboard.readText()) === "waymark flows 'tcp and dport 5432' --by service --since 1h --limit 10");
	await page.goto(`${base}/explore?by=conversation&where=port+5432`);
	await page.locator("tbody tr").first().focus();
	await key("j");
	expect("j is the next row", await page.evaluate(() => document.activeElement === document.querySelectorAll("tbody tr")[1]));
	await key("k");
	await key("Enter");
	await page.waitForURL(/\/flow\/tcp\//);
	await page.waitForSelector(".lane .hop");
	await key("[");
	await page.waitForURL(/since=.*until=/);
	const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
	const before = await theme();
	await key("t");
	expect("t changes the theme", (await theme()) !== before);
	await key("?");
	await page.waitForSelector("dialog[open]");
	wrong.push(...await findings(page));
	await key("Escape");
	await page.waitForSelector("dialog:not([open])", { state: "attached" });
	await key("g");
	await key("h");
	await page.waitForURL(/\/hosts/);
	await close();
	return wrong;
});

await check("Tab reaches everything, and passes it", async () => {
	const { page, wrong, close } = await open("/explore?limit=5", "tfoot tr");
	const count = await page.evaluate(() => [...document.querySelectorAll("a[href],button:not([disabled]),input,select,summary,[tabindex='0']")].filter((e) => e.checkVisibility()).length);
	const seen = new Set();
	for (let i = 0; i < count + 40 && seen.size < count; i++) {
		await page.keyboard.press("Tab");
		seen.add(await page.evaluate(() => {
			const all = (globalThis.tabbed ??= new Map()), e = document.activeElement;
			if (!all.has(e)) all.set(e, all.size);
			return all.get(e);
		}));
	}
	if (seen.size < count) wrong.push(`${seen.size} of ${count}`);
	await close();
	return wrong;
});

await check("a wrong filter is underlined where it is wrong", async () => {
	const { page, wrong, close } = await open("/explore", "tbody tr", { refused: true });
	await page.locator("#filter").fill("tcp and dprot 443");
	await page.waitForSelector(".under u");
	const marked = await page.locator(".under u").textContent();
	if (marked !== "dprot") wrong.push(`underlined: ${marked}`);
	await page.locator("#filter").press("Enter");
	await page.waitForSelector("[role=alert]");
	wrong.push(...await findings(page));
	await close();
	return wrong;
});

await check("nothing found, no such page and no agent say what to do", async () => {
	const empty = await open("/explore?where=udp+and+port+9", ".notice");
	const wrong = [...empty.wrong, ...await findings(empty.page)];
	await empty.page.getByText("Show all flows").click();
	await empty.page.waitForSelector("tbody tr");
	await empty.close();
	const none = await open("/docs/../explore/none/../../hosts", "tbody tr");
	await none.close();
	const gone = await open("/", "[role=alert]", { refused: true, before: (page) => page.route("**/api/v1/**", (r) => r.abort()) });
	const text = await gone.page.locator("[role=alert]").first().textContent();
	if (!text.includes("does not answer") || !text.includes("systemctl")) wrong.push(text);
	await gone.close();
	return wrong;
});

await check("more than 150 interfaces are a matrix", async () => {
	const at = { kind: "interface", tier: 1, up: true, addresses: [] };
	const nodes = [{ id: "host", kind: "host", name: "alpha", tier: 0, order: 0, up: true }];
	const edges = [];
	for (let n = 0; n < 40; n++) {
		nodes.push({ id: `netns/n${n}`, kind: "netns", name: `n${n}`, tier: 0, order: n, up: true });
		for (let i = 0; i < 5; i++) nodes.push({ ...at, id: `n${n}/eth${i}`, name: `eth${i}`, in: `netns/n${n}`, order: i });
		edges.push({ from: `n${n}/eth0`, to: `n${(n + 1) % 40}/eth1`, kind: "veth" });
	}
	const answer = { host: "alpha", at: new Date().toISOString(), since: new Date().toISOString(), nodes, edges, use: [] };
	const open_ = nodes.filter((n) => n.kind === "netns").map((n) => n.id).join(",");
	const { page, wrong, close } = await open(`/map?open=${encodeURIComponent(open_)}`, ".matrix td button", {
		before: (p) => p.route("**/api/v1/topology*", (r) => r.fulfill({ json: answer })),
	});
	if (await page.locator("svg.topology").count()) wrong.push("there is a picture, too");
	wrong.push(...await findings(page));
	await page.goto(`${base}/map`);
	await page.waitForSelector(".topology .node"); // namespaces that are closed leave few
	await close();
	return wrong;
});

await check("a filter of a counter leaves out the rest of the totals, too", async () => {
	const { page, wrong, close } = await open("/explore?where=drops+%3E+0&by=src,dport", "tfoot tr");
	const sum = await page.locator("tfoot tr").last().textContent();
	if (!/kB/.test(sum) || /MB/.test(sum)) wrong.push(`${sum}: 450 records have 40 kB`);
	await close();
	return wrong;
});

await check("names in the data are text, never code", async () => {
	const { page, wrong, close } = await open(`/explore?where=${encodeURIComponent('iface "<img src=x onerror=alert(1)>"')}`, ".notice");
	if (await page.locator("main img").count()) wrong.push("an element was made of a filter");
	await close();
	return wrong;
});

const tick = async (n) => { await (await fetch(`${control}/tick?n=${n}`)).text(); };
const followers = async () => (await (await fetch(`${base}/api/v1/status`)).json()).api.followers;
async function until(what, test) {
	const end = Date.now() + patience;
	while (!(await test())) {
		if (Date.now() > end) throw new Error(`still not: ${what}`);
		await new Promise((r) => setTimeout(r, 50));
	}
}

await check("live: one stream, which follows, waits under the pointer, and ends with the tab", async () => {
	const { page, wrong, close } = await open("/", ".verdict", {});
	await until("a follower", async () => (await followers()) === 1);
	let asked = 0;
	page.on("request", (r) => { if (r.url().includes("/api/v1/why")) asked++; });
	const next = async (what) => {
		const before = asked;
		await until(what, async () => asked > before);
	};
	const newer = next("a newer answer");
	await tick(1);
	await newer;
	await page.locator(".headline").hover();
	const before = asked;
	await tick(1);
	await page.waitForTimeout(300);
	if (asked !== before) wrong.push("it changes under the pointer");
	const held = next("what was held back");
	await page.mouse.move(5, 5);
	await held;
	const hide = (hidden) => page.evaluate((h) => {
		Object.defineProperty(document, "hidden", { configurable: true, get: () => h });
		document.dispatchEvent(new Event("visibilitychange"));
	}, hidden);
	await hide(true);
	await until("no follower", async () => (await followers()) === 0);
	await hide(false);
	await until("a follower again", async () => (await followers()) === 1);
	await close();
	return wrong;
});

await check("the memory of a page that follows does not grow", async () => {
	const pace = Number(process.env.PACE ?? 0); // milliseconds from one interval to the next
	const intervals = Number(process.env.INTERVALS ?? 20), rounds = Number(process.env.ROUNDS ?? 1);
	// What is followed, and asks for what at each interval.
	const followed = [["/", "/api/v1/why"], ["/explore?show=stack", "/api/v1/flows"]].slice(0, rounds);
	const pages = await Promise.all(followed.map(async ([path, asks]) => {
		let streams = 0;
		const opened = await open(path, ".headline, tfoot tr", { before: (page) => page.on("request", (r) => { streams += r.url().includes("/api/v1/live"); }) });
		await opened.page.waitForSelector("canvas"); // the traffic of the last hour, which stays
		const session = await opened.page.context().newCDPSession(opened.page);
		return { ...opened, path, asks, session, heaps: [], streams: () => streams };
	}));
	const run = async (n) => {
		for (let i = 0; i < n; i++) {
			if (pace) await new Promise((r) => setTimeout(r, pace));
			const answers = pages.map((p) => p.page.waitForResponse((r) => r.url().includes(p.asks)));
			await tick(1);
			await Promise.all(answers.map(async (answer) => (await answer).finished()));
		}
	};
	const measure = async () => {
		for (const p of pages) {
			await p.session.send("HeapProfiler.collectGarbage");
			p.heaps.push((await p.session.send("Runtime.getHeapUsage")).usedSize);
			console.log(`    ${p.path}: ${(p.heaps.at(-1) / 1e6).toFixed(2)} MB, ${(await p.session.send("Memory.getDOMCounters")).nodes} nodes`);
		}
	};
	// What the browser makes once, late, is no growth: that goes on.
	const most = 1_500_000, grown = (p) => p.heaps.at(-1) - p.heaps.at(rounds > 1 ? 1 : -2);
	await run(5);
	await measure();
	for (let round = 0; round < rounds || (rounds === 1 && round < 2 && grown(pages[0]) > most); round++) {
		await run(intervals);
		await measure();
	}
	const wrong = pages.flatMap((p) => p.wrong);
	for (const p of pages) {
		if (grown(p) > most) wrong.push(`${p.path} grew by ${grown(p)} bytes`);
		if (p.streams() !== 1) wrong.push(`${p.path}: ${p.streams()} streams, not one that stays`);
		await p.close();
	}
	return wrong;
});

await browser.close();
process.exit(failed ? 1 : 0);
