import { describe, expect, test } from "vitest";
import { address } from "./api.ts";
import { curl, flowsCommand, quote } from "./command.ts";
import { and, csv, label, question, test as cellTest, trim } from "./explore.ts";
import { ago, counted, delay, measure, percent, short } from "./format.ts";
import { begun, bytesTo } from "./parts/filterbox.tsx";
import { href } from "./route.ts";
import { exchanged, keyed, lines, rest, stacked, summary, times } from "./series.ts";
import { duration, moment, niceStep, range, seconds, zoomed } from "./time.ts";
import { graph } from "./charts/sankey.tsx";
import { filterOf, place, whereOf } from "./verdicts.ts";
import { draw, isRed } from "./map.ts";
import type { GraphNode, Topology } from "./topology.ts";
import type { Verdict } from "./types.ts";

describe("time", () => {
	test.each([["90s", 90], ["1h30m", 5400], ["1d", 86400], ["0.5m", 30]])("%s", (text, n) => {
		expect(seconds(text)).toBe(n);
		expect(seconds(duration(n))).toBe(n);
	});
	test.each(["", "1", "h", "1x", "1h2"])("%j is no duration", (text) => expect(seconds(text)).toBeNaN());
	test("moments are back from now, or given", () => {
		expect(moment("1h", 7200)).toBe(3600);
		expect(moment("1970-01-01T01:00:00Z", 0)).toBe(3600);
		expect(moment("tomorrow", 0)).toBeNaN();
		expect(range("nonsense", "", 7200)).toEqual({ from: 3600, to: 7200 });
	});
	test("steps divide a range", () => {
		for (const length of [10, 600, 3600, 86400, 30 * 86400]) {
			expect(length / niceStep(length, 180)).toBeLessThanOrEqual(180);
		}
		expect(niceStep(3600, 180)).toBe(30);
		expect(zoomed({ from: 0, to: 100 }, 2)).toEqual({ from: 25, to: 75 });
	});
});

describe("format", () => {
	test.each([[0, "0"], [999, "999"], [1000, "1 k"], [999600, "1.00 M"], [1234567, "1.23 M"], [-1500, "−1.50 k"], [NaN, "–"]])("%d", (n, want) => expect(short(n)).toBe(want));
	test.each([[0, "0 bans"], [1, "1 ban"], [1000, "1 k bans"]])("%d bans", (n, want) => expect(counted(n, "ban")).toBe(want));
	test.each([[0, "0"], [999, "999 ns"], [41e6, "41.0 ms"], [1.5e9, "1.50 s"]])("delay %d", (n, want) => expect(delay(n)).toBe(want));
	test("shares are never rounded to all or nothing", () => {
		expect([0, 1, 0.99999, 0.00001, 0.5].map(percent)).toEqual(["0 %", "100 %", "> 99.99 %", "< 0.01 %", "50 %"]);
	});
	test("bytes become bits a second", () => {
		const m = measure("bytes", true);
		expect(m.text(m.scale(750, 60))).toBe("100 bit/s");
		expect(measure("ns", false).scale(5, 60)).toBe(5);
	});
	test("ago", () => expect([30, 90, 5400, 200000].map(ago)).toEqual(["30 s", "2 min", "2 h", "2 d"]));
});

describe("commands", () => {
	test.each([["tcp", "tcp"], ["src/24", "src/24"], ["a b", "'a b'"], ["it's", "'it'\\''s'"], ["veth*", "'veth*'"], ["", "''"], ["[::1]", "'[::1]'"], ["$(x)", "'$(x)'"]])("quote %j", (text, want) => expect(quote(text)).toBe(want));
	test("a page is a command", () => {
		const p = { filter: "tcp and dport 443", by: "src/24", sort: "", since: "24h", until: "", limit: 10 };
		expect(flowsCommand(p)).toBe("waymark flows 'tcp and dport 443' --by src/24 --since 24h --limit 10");
		expect(curl("http://h", "/api/v1/flows", p)).toContain("filter=tcp+and+dport+443&by=src%2F24");
		expect(address("/x", { a: undefined, b: false, c: 0 })).toBe("/x?c=0");
	});
	test("URLs are readable, and mean the same", () => {
		const url = href("/explore", { where: "tcp and dport 443 or a&b=+", by: "src/24,dst", since: undefined });
		expect(url).toBe("/explore?where=tcp+and+dport+443+or+a%26b%3D%2B&by=src/24,dst");
		expect(new URLSearchParams(url.split("?")[1]).get("where")).toBe("tcp and dport 443 or a&b=+");
	});
});

describe("series", () => {
	const row = (t: number, src: string, bytes?: number) => ({ time: new Date(t * 1000).toISOString(), src, bytes });
	const at = times(0, 180, 60);
	const made = (sum: boolean) => lines([row(0, "a", 1), row(120, "a", 3), row(60, "b", 5), row(999, "a", 7)], ["src"], at, (r) => r.bytes, sum, (k) => k[0]!);
	test("a sum without a row is 0, any other number is not known", () => {
		expect(made(true).map((s) => s.values)).toEqual([[1, 0, 3], [0, 5, 0]]);
		expect(made(false).map((s) => s.values)).toEqual([[1, null, 3], [null, 5, null]]);
	});
	test("stacks and what is left add up", () => {
		expect(stacked(made(true))).toEqual([[1, 0, 3], [1, 5, 3]]);
		expect(rest([4, 5, null], made(true))).toEqual([3, 0, null]);
	});
	test("summary", () => {
		expect(summary([null, 4, 2])).toEqual({ min: 2, mean: 3, p95: 4, max: 4, last: 2 });
		expect(summary([null]).mean).toBeNaN();
	});
	test("what is not known yet is no fall to zero", () => {
		const values = [10, 10, 5, 0];
		trim(values, [0, 60, 120, 180], 60, { from: 0, to: 150 }, true);
		expect(values).toEqual([10, 10, 10, null]);
	});
	test("keys of inner objects and of prefixes", () => {
		expect(keyed({ src: "10.0.0.0/24", ioam: { path: "x" } } as never, ["src/24", "ioam.path", "dst"])).toEqual(["10.0.0.0/24", "x", ""]);
	});
	test("the other direction", () => {
		expect(exchanged("tcp and dport 443 and src net 10/8")).toBe("tcp and sport 443 and dst net 10/8");
		expect(exchanged(exchanged("src/24,dport"))).toBe("src/24,dport");
	});
	test("a name in two columns is two nodes", () => {
		const g = graph([{ steps: ["a", "b"], value: 1 }, { steps: ["b", "a"], value: 2 }, { steps: ["a", "b"], value: 3 }]);
		expect(g.nodes.length).toBe(4);
		expect(g.links.map((l) => l.value)).toEqual([4, 2]);
	});
});

describe("explore", () => {
	test("the URL has all of the question", () => {
		expect(question({ where: "tcp", limit: "x" })).toMatchObject({ where: "tcp", by: "service", sort: "bytes", show: "stack", since: "1h", limit: 10, before: false });
	});
	test.each([["proto", "6", "tcp"], ["src", "10.0.0.0/24", "src net 10.0.0.0/24"], ["dport", "443", "dport 443"], ["dport", "0", ""], ["iface", "a b", 'iface "a b"'], ["src", "", ""]])("a cell %s %s", (k, v, want) => expect(cellTest(k, v, false)).toBe(want));
	test("of a fold, either end is meant", () => expect(cellTest("dport", "443", true)).toBe("port 443"));
	test("and binds closer than or", () => expect(and("a or b", "c")).toBe("(a or b) and c"));
	test("labels", () => expect(label(["proto", "dport"], ["6", "443"])).toBe("tcp · 443 https"));
	test("labels of ICMP name the message", () => {
		expect(label(["proto", "dport"], ["58", "34560"])).toBe("icmpv6 · neigh-sol");
		expect(label(["proto", "sport", "dport"], ["1", "7", "781"])).toBe("icmp · 7 · unreachable");
		expect(label(["dport", "proto"], ["1027", "1"])).toBe("4/3 · icmp");
	});
	test("CSV quotes what needs it", () => {
		const text = csv({ by: ["src"], number: { path: "bytes" }, answer: { rows: [{ src: 'a,"b"', bytes: 3 }] } } as never);
		expect(text).toBe('src,packets,bytes,records,bytes\r\n"a,""b""",0,3,0,3\r\n');
	});
});

describe("filter box", () => {
	test("the word that is being written", () => expect(["tcp and dpo", "tcp ", "not (por"].map((t) => begun(t)[1])).toEqual(["dpo", "", "por"]));
	test("places are bytes, characters are not", () => expect(bytesTo("öä tcp", 4)).toBe(2));
});

test("verdicts lead to their flows", () => {
	const v = { kind: "server_slow", where: {}, flow: { proto: "tcp", dst: "2001:db8::1", dport: 443 } } as unknown as Verdict;
	expect(place(v)).toBe("[2001:db8::1]:443");
	expect(filterOf(v)).toBe("tcp and host 2001:db8::1 and port 443");
	expect(whereOf(v)).toBe("/explore?where=tcp+and+host+2001:db8::1+and+port+443&by=service&sort=server&show=lines&since=1h");
	expect(whereOf({ ...v, flow: { ...v.flow!, src: "10.0.0.1", sport: 5 } })).toBe("/flow/tcp/10.0.0.1:5/[2001:db8::1]:443");
});

describe("map", () => {
	const node = (id: string, within: string, tier: number, order: number): GraphNode => ({ id, kind: "interface", name: id, in: within, tier, order });
	const graph = (n: number): Topology => ({
		host: "h", at: "", since: "", edges: [{ kind: "pair", from: "a0", to: "b0" }],
		nodes: [{ id: "host", kind: "host", name: "h", tier: -1, order: 0 }, ...Array.from({ length: n }, (_, i) => [node(`a${i}`, "host", 0, i), node(`b${i}`, "netns/x", 1, i)]).flat()],
		use: [{ id: "a0", rx_bits_per_second: 1e9, tx_bits_per_second: 0, rx_dropped_per_second: 0, tx_dropped_per_second: 0, utilisation: 0.95 }],
	});
	test("the same graph is the same picture, in whatever order it comes", () => {
		const a = graph(5), b = graph(5);
		b.nodes.reverse();
		const places = (t: Topology) => draw(t, new Set(), false).boxes.map((x) => [x.id, x.x, x.y]).sort();
		expect(places(a)).toEqual(places(b));
	});
	test("boxes do not overlap, and lie in their namespace", () => {
		const p = draw(graph(6), new Set(), false);
		for (const [i, a] of p.boxes.entries()) {
			for (const b of p.boxes.slice(i + 1)) expect(a.x !== b.x || Math.abs(a.y - b.y) >= a.height).toBe(true);
			expect(p.bands.some((band) => a.y >= band.y && a.y + a.height <= band.y + band.height)).toBe(true);
		}
	});
	test("many are closed until they are opened; lines go to what is shown", () => {
		expect(draw(graph(200), new Set(), false).boxes.length).toBe(2);
		const p = draw(graph(200), new Set(["host"]), false);
		expect(p.boxes.length).toBe(201);
		expect(p.lines).toMatchObject([{ from: { id: "a0" }, to: { id: "closed netns/x" }, red: true }]);
	});
	test("red is what is full, drops or loses", () => {
		const use = { id: "x", rx_bits_per_second: 0, tx_bits_per_second: 0, rx_dropped_per_second: 0, tx_dropped_per_second: 0 };
		expect([undefined, use, { ...use, utilisation: 0.9 }, { ...use, rx_dropped_per_second: 1 }, { ...use, lost: 2, sent: 10 }, { ...use, lost: 30, sent: 1000 }].map(isRed)).toEqual([false, false, true, true, false, true]);
		expect(draw(graph(5), new Set(), true).boxes.map((b) => b.id)).toEqual(["a0"]);
	});
});
