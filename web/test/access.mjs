// Tests in a real browser who gets in. Input: CONSOLE, a console that takes TOKEN; ELSEWHERE, a server with a page of
// another site; CHROMIUM, the program; SHOTS, a folder for pictures (optional). Output: a line for each check; exit code 1 if
// one failed. internal/console/browser calls it.
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const base = process.env.CONSOLE, elsewhere = process.env.ELSEWHERE, shots = process.env.SHOTS, token = process.env.TOKEN;
const axe = readFileSync(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const port = (url) => new URL(url).port;
const evil = `http://evil.example:${port(elsewhere)}`, rebound = `http://evil.example:${port(base)}`;

let failed = 0;
async function check(what, test) {
	const problems = await test().catch((e) => [e.message.split("\n")[0]]);
	if (problems.length) failed++;
	console.log(`${problems.length ? "FAIL" : "ok"} ${what}`);
	for (const p of problems) console.log(`    ${p}`);
}

// Every name of the other site leads to this host: first to its own server, then to the console (DNS rebinding).
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP evil.example 127.0.0.1",
	"--disable-features=LocalNetworkAccessChecks,PrivateNetworkAccessChecks,BlockInsecurePrivateNetworkRequests"] }); // other browsers have no such checks
const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, bypassCSP: false });
context.setDefaultTimeout(20_000);
const page = await context.newPage();

// findings are what axe has to say; it is not part of the page, so its policy does not count for it.
async function findings() {
	const session = await context.newCDPSession(page);
	await session.send("Runtime.evaluate", { expression: axe });
	const r = await session.send("Runtime.evaluate", { expression: "axe.run(document,{resultTypes:['violations']}).then(r=>JSON.stringify(r.violations.map(v=>v.id+': '+v.nodes.map(n=>n.html.slice(0,90)).join(' | '))))", awaitPromise: true });
	return JSON.parse(r.result.value);
}

await check("without credentials, the API refuses and a page asks for a token", async () => {
	const wrong = [];
	const answer = await context.request.get(`${base}/api/v1/status`);
	if (answer.status() !== 401 || !(await answer.text()).includes("/session")) wrong.push(`API: ${answer.status()} ${await answer.text()}`);
	const forged = await context.request.get(`${base}/api/v1/status`, { headers: { "Remote-User": "admin" } });
	if (forged.status() !== 401 || !(await forged.text()).includes("is no proxy")) wrong.push(`a forged header of a proxy: ${forged.status()} ${await forged.text()}`);
	await page.goto(`${base}/explore?by=src`);
	if (new URL(page.url()).pathname !== "/session") wrong.push(`shown: ${page.url()}`);
	for (const [colorScheme, width] of [["light", 1280], ["dark", 360]]) {
		await page.emulateMedia({ colorScheme });
		await page.setViewportSize({ width, height: 760 });
		wrong.push(...await findings());
		if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) wrong.push(`wider than ${width} px`);
		if (shots) await page.screenshot({ path: `${shots}/login-${colorScheme}.png` });
	}
	return wrong;
});

await check("a wrong token is refused with a reason, the right one opens the console, by keyboard alone", async () => {
	const wrong = [];
	await page.keyboard.type("waymark_wrong");
	await page.keyboard.press("Enter");
	const said = await page.locator("[role=alert]").textContent();
	if (!said.includes("not known")) wrong.push(said);
	await page.keyboard.type(token);
	await page.keyboard.press("Enter");
	await page.waitForSelector(".verdict");
	const seen = await page.evaluate(() => document.cookie);
	if (seen) wrong.push(`a script can read the cookie: ${seen}`);
	return wrong;
});

// attempts are what a page can try to read from the console, or to have it do. Each answers with what it got.
const attempts = {
	fetch: (to) => fetch(`${to}/api/v1/status`, { credentials: "include" }).then(async (r) => `${r.status} ${(await r.text()).slice(0, 60)}`),
	blind: (to) => fetch(`${to}/api/v1/status`, { mode: "no-cors", credentials: "include" }).then(async (r) => (await r.text()) && "read"),
	stream: (to) => new Promise((done) => { const s = new EventSource(`${to}/api/v1/live?by=src`, { withCredentials: true }); s.onopen = () => done("read"); s.onerror = () => { s.close(); done(""); }; }),
	script: (to) => new Promise((done) => { const e = document.createElement("script"); e.src = `${to}/api/v1/status`; e.onload = () => done("loaded"); e.onerror = () => done(""); document.head.append(e); }),
	image: (to) => new Promise((done) => { const e = new Image(); e.src = `${to}/`; e.onload = () => done("loaded"); e.onerror = () => done(""); }),
	frame: (to) => new Promise((done) => { const e = document.createElement("iframe"); e.src = `${to}/`; e.onload = () => { try { done(e.contentDocument?.body?.textContent ?? ""); } catch { done(""); } }; document.body.append(e); }),
	change: (to) => fetch(`${to}/api/v1/gate/bans`, { method: "POST", mode: "no-cors", credentials: "include", headers: { "Content-Type": "text/plain" }, body: "{}" }).then((r) => (r.type === "opaque" ? "" : String(r.status))),
};

const admitted = async () => Number(await (await fetch(`${elsewhere}/admitted`)).text());

// attack has a page try everything. The console says how many requests it let in, whatever the page may see of them.
// A page of the same name may read how it is refused; one of another site nothing at all.
async function attack(from, to, refusal) {
	const wrong = [], statuses = [];
	await page.goto(from);
	const note = (r) => { if (r.url().startsWith(to)) statuses.push(r.status()); };
	page.on("response", note);
	const before = await admitted();
	for (const [name, attempt] of Object.entries(attempts)) {
		const got = await page.evaluate(attempt, to).catch(() => "");
		if (got && !refusal) wrong.push(`${name}: ${got}`);
	}
	page.off("response", note);
	const more = (await admitted()) - before;
	if (more > 0) wrong.push(`${more} requests were let in`);
	if (refusal && !(statuses.length && statuses.every((s) => s === refusal))) wrong.push("not every request was refused");
	console.log(`    answers: ${statuses.join(", ") || "none"}`);
	return wrong;
}

await check("a page of another site gets nothing, though this browser is logged in", () => attack(`${evil}/`, base));

await check("a page whose name leads to the console (DNS rebinding) gets nothing", async () => {
	// The page came from elsewhere, before its name led here.
	await page.route(`${rebound}/page`, (r) => r.fulfill({ contentType: "text/html", body: "<!doctype html><title>rebound</title><p>rebound" }));
	const wrong = await attack(`${rebound}/page`, rebound, 403);
	await page.goto(`${rebound}/`);
	const said = await page.locator("body").textContent();
	if (!said.includes("is not the console") || !said.includes("console.hosts")) wrong.push(`shown: ${said.slice(0, 80)}`);
	return wrong;
});

await check("another site may link here, and the form of another site logs nobody in", async () => {
	const wrong = [];
	await page.goto(`${evil}/`);
	const [answer] = await Promise.all([
		page.waitForNavigation(),
		page.evaluate(([to, t]) => { document.body.innerHTML = `<form method="post" action="${to}/session"><input name="token" value="${t}"></form>`; document.forms[0].submit(); }, [base, token]),
	]);
	if (answer.status() !== 403) wrong.push(`a form: ${answer.status()}`);
	await page.goto(`${evil}/`);
	await page.evaluate((to) => { document.body.innerHTML = `<a href="${to}/hosts">there</a>`; }, base);
	await page.click("a");
	await page.waitForURL(`${base}/session`); // the cookie does not come with a link from elsewhere
	await page.goto(`${base}/hosts`);
	await page.waitForSelector("tbody tr");
	return wrong;
});

await check("when the session ends, the console says so and offers the way back", async () => {
	const ended = await page.evaluate(() => fetch("/session", { method: "DELETE" }).then((r) => r.status));
	const wrong = ended === 204 ? [] : [`logout: ${ended}`];
	await page.keyboard.press("g");
	await page.keyboard.press("e");
	const alert = page.locator("[role=alert]").first();
	await alert.waitFor();
	if (shots) await page.screenshot({ path: `${shots}/ended.png` });
	await alert.getByText("Log in", { exact: true }).click();
	await page.waitForURL(`${base}/session`);
	return wrong;
});

await browser.close();
process.exit(failed ? 1 : 0);
