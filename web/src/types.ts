// Written by `make docs` from the types of the answers.

export interface API {
	connections: number;
	evicted: number;
	followers: number;
	dropped: number;
}

export interface Access {
	socket: string;
	group: string;
	loopback?: string;
	console?: Console;
	warnings: string[];
}

export interface Answer {
	host: string;
	sampling: number;
	from?: string;
	to?: string;
	intervals: number;
	by: string[];
	groups: number;
	records: number;
	total: Counters;
	repeated: Counters;
	summed: number;
	missed: number;
	since?: string;
	incomplete?: string;
	until?: string;
	oldest?: string;
	step?: string;
	lost?: number;
	partial?: string;
	shared_flows?: number;
	unsure_flows?: number;
	behind_flows?: number;
	each_host?: string;
	whole?: Row[];
	rows: Row[];
}

export interface Ban {
	prefix: string;
	since: string;
	until: string | null;
	by: string;
	level: number;
	reason?: string;
	evidence?: Evidence;
	dropped: number;
	dropped_bytes: number;
}

export interface Bans {
	bans: Ban[];
	max: number;
}

export interface Captures {
	packets: number;
	limited: number;
	full: number;
}

export interface Certificate {
	use: string;
	name: string;
	issuer: string;
	ends: string;
}

export interface Check {
	name: string;
	state: string;
	since?: string;
	purpose?: string;
	found?: string;
	instead?: string;
	remedy?: string;
}

export interface Completion {
	error?: FilterError;
	words: FilterWord[];
	field?: string;
}

export interface Consequence {
	kind: string;
	text: string;
}

export interface Console {
	listen: string;
	tls: boolean;
	certificates: Certificate[];
	tokens: number;
	users: number;
	proxies: string[];
	sessions: number;
	requests: Record<string, number>;
	refused: Record<string, number>;
}

export interface Counters {
	packets: number;
	bytes: number;
	payload_bytes: number;
	wire_bytes: number;
	fragments: number;
	ce_packets: number;
	dropped: number;
	dropped_bytes: number;
	forwarded: number;
}

export interface Counts {
	packets: number;
	bytes: number;
	dropped: number;
	dropped_bytes: number;
}

export interface Doc {
	name: string;
	doc: string;
}

export interface Drain {
	count: number;
	deltas: number;
	records: number;
	last_ns: number;
	grace_ns: number;
	interval_ns: number;
	errors: number;
}

export interface Edge {
	kind: string;
	from: string;
	to: string;
}

export interface Evidence {
	rule: string;
	rate: number;
	threshold: number;
	unit: string;
	amount: number;
	elapsed_seconds: number;
	window_seconds: number;
	error_bound: number;
	total: number;
	packet: string;
}

export interface Examined {
	checks: Check[];
}

export interface Exporter {
	name: string;
	target: string;
	queued: number;
	queue_size: number;
	queued_bytes?: number;
	queue_bytes?: number;
	exported: number;
	filtered: number;
	retries: number;
	lost: Loss[];
	last_error?: string;
}

export interface FilterDoc {
	name: string;
	doc: string;
	aliases: string[];
	example: string;
}

export interface FilterError {
	what: string;
	begin: number;
	end: number;
}

export interface FilterWord {
	text: string;
	doc?: string;
}

export interface Flow {
	proto: string;
	src?: string;
	sport?: number;
	dst: string;
	dport?: number;
}

export interface Graph {
	since: string;
	nodes: Node[];
	edges: Edge[];
	hidden?: number;
}

export interface History {
	path: string;
	bytes: number;
	size: number;
	files: number;
	files_aged: number;
	records: number;
	oldest?: string;
	full?: string;
	reach_seconds: number;
	failing?: string;
	counts: HistoryCounts;
}

export interface HistoryCounts {
	intervals: number;
	records: number;
	lost: number;
	lost_records: number;
	given_up_records: number;
	torn_bytes: number;
	damaged: number;
	sealed: number;
	aged: number;
	removed: number;
	clock_steps: number;
	errors: number;
	partial_answers: number;
}

export interface Hook {
	iface: string;
	netns?: string;
	ifindex: number;
	direction: string;
	mode: string;
	state: string;
	error?: string;
	warning?: string;
}

export interface Hop {
	hop: number;
	hop_limit?: number;
	node_id?: number;
	ingress?: number;
	egress?: number;
	node_id_wide?: string;
	ingress_wide?: number;
	egress_wide?: number;
	namespace_data?: string;
	namespace_data_wide?: string;
	transit?: Times;
	link?: Times;
	relative?: boolean;
	drift_ppm?: number;
}

export interface Interface {
	iface: string;
	netns?: string;
	direction: string;
	frames: number;
	frame_bytes: number;
	packets: number;
	wire_bytes: number;
	iface_packets_min: number;
	iface_bytes_min: number;
	iface_packets: number;
	iface_bytes: number;
	uncounted: Reason[];
	coverage: number;
}

export interface Loss {
	where: string;
	reason: string;
	count: number;
}

export interface Matter {
	kind: string;
	count: number;
	what: string;
	note?: string;
}

export interface Memory {
	limit: number;
	file?: string;
	others: number;
	shares: MemoryShare[];
}

export interface MemoryShare {
	name: string;
	key?: string;
	bytes: number;
	count: number;
	wanted: number;
}

export interface Node {
	id: string;
	kind: string;
	name: string;
	in?: string;
	link?: string;
	ifindex?: number;
	mtu?: number;
	up?: boolean;
	mac?: string;
	addresses?: string[];
	known?: string[];
	port?: string;
	tier: number;
	order: number;
}

export interface NumberDoc {
	name: string;
	doc: string;
	path: string;
	unit: string;
	sum: boolean;
	counter: boolean;
}

export interface Path {
	id: string;
	namespace: number;
	trace_type: string;
	overflow?: boolean;
	iface: string;
	netns?: string;
	src: string;
	dst: string;
	first: string;
	last: string;
	packets: number;
	bytes: number;
	delay?: Times;
	relative?: boolean;
	hops: Hop[];
	reached?: number;
	flow_count: number;
	flows?: PathFlow[];
}

export interface PathFlow {
	proto: number;
	src: string;
	sport: number;
	dst: string;
	dport: number;
	packets: number;
	mean_ns?: number;
}

export interface Paths {
	paths: Path[];
}

export interface Program {
	name: string;
	id: number;
	run_count: number;
	run_time_ns: number;
}

export interface Reason {
	reason: string;
	packets: number;
	frames: number;
	bytes: number;
}

export interface Reference {
	filters: FilterDoc[];
	keys: Doc[];
	sorts: string[];
	numbers: NumberDoc[];
	parameters: Doc[];
	paths: Doc[];
	verdicts: RuleDoc[];
}

export interface Rule {
	id: number;
	text: string;
	packets: number;
	bytes: number;
	dropped: number;
	dropped_bytes: number;
	packets_per_second: number;
	bytes_per_second: number;
}

export interface RuleDoc {
	name: string;
	doc: string;
	inputs: string;
	threshold: string;
}

export interface Rules {
	rules: Rule[];
	sets: Set[];
	passed: Counts;
	not_ip: Counts;
	removed: Counts;
	banned: Counts;
	exempt: Counts;
	forgotten_sources: number;
	captures: Captures;
}

export interface Set {
	name: string;
	members: number;
}

export interface Status {
	version: string;
	host: string;
	pid: number;
	started: string;
	now: string;
	probe: string;
	hooks: Hook[];
	table: Table;
	memory: Memory;
	api: API;
	drain: Drain;
	interfaces: Interface[];
	totals: Total[];
	exporters: Exporter[];
	losses: Loss[];
	programs: Program[];
	history?: History;
	topology?: Topology;
	access?: Access;
}

export interface Table {
	max_entries: number;
	entries: number;
	memory_bytes: number;
	evicted: number;
	unattributed: number;
	counts_full: number;
	live: number;
	shed: number;
}

export interface Times {
	count: number;
	mean_ns: number;
	min_ns: number;
	p50_ns: number;
	p90_ns: number;
	max_ns: number;
}

export interface Topology {
	versions: number;
	bytes: number;
	oldest?: string;
	newest?: string;
	removed: number;
	file?: string;
	error?: string;
	lldp: string;
}

export interface Total {
	iface: string;
	netns?: string;
	direction: string;
	protocol: string;
	packets: number;
	bytes: number;
	payload_bytes: number;
	wire_bytes: number;
	fragments: number;
	ce_packets: number;
	dropped: number;
	dropped_bytes: number;
	forwarded: number;
}

export interface Use {
	id: string;
	rx_bits_per_second: number;
	tx_bits_per_second: number;
	rx_dropped_per_second: number;
	tx_dropped_per_second: number;
	utilisation?: number;
	lost?: number;
	sent?: number;
}

export interface Verdict {
	kind: string;
	severity: string;
	score: number;
	text: string;
	from: string;
	to: string;
	measure: string;
	unit: string;
	value: number;
	threshold: number;
	usual?: number;
	samples: number;
	where: Where;
	flow?: Flow;
	others?: number;
	evidence?: string[];
	command?: string;
	consequences?: Consequence[];
}

export interface VerdictAnswer {
	host: string;
	from?: string;
	to?: string;
	usual_from?: string;
	filter?: string;
	verdicts: Verdict[];
	more: number;
	summary: string;
	examined: Matter[];
}

export interface Where {
	host?: string;
	netns?: string;
	iface?: string;
	direction?: string;
	to_host?: string;
	to_netns?: string;
	to_iface?: string;
	src?: string;
	dst?: string;
	path?: string;
	nodes?: string;
	hop?: number;
	link?: boolean;
	rule?: number;
	rule_text?: string;
	part?: string;
	reason?: string;
}

// Row has what its keys and records have.
export interface Row {
	bytes?: number;
	ce_packets?: number;
	direction?: string;
	dport?: number;
	dst?: string;
	end_reason?: string;
	family?: number;
	first?: string;
	flow_label?: number;
	forwarded?: number;
	fragments?: number;
	host?: string;
	icmp_code?: number;
	icmp_type?: number;
	iface?: string;
	in?: string;
	initiator?: string;
	initiator_by?: string;
	inner_vlan?: number;
	last?: string;
	netns?: string;
	other_iface?: string;
	out?: string;
	packets?: number;
	payload_bytes?: number;
	proto?: number;
	records?: number;
	rtt_records?: number;
	sampling?: number;
	sport?: number;
	src?: string;
	tcp_flags?: number;
	time?: string;
	tos?: number;
	ttl_max?: number;
	ttl_min?: number;
	tunnel?: string;
	unattributed?: boolean;
	vlan?: number;
	vni?: number;
	wire_bytes?: number;
	back?: {
		bytes?: number;
		ce_packets?: number;
		forwarded?: number;
		fragments?: number;
		packets?: number;
		payload_bytes?: number;
		wire_bytes?: number;
		drops?: {
			bytes?: number;
			packets?: number;
		};
	};
	drops?: {
		by?: string;
		bytes?: number;
		packets?: number;
		rule?: number;
		verdict?: string;
	};
	ioam?: {
		changes?: number;
		duplicates?: number;
		hops?: number;
		lost?: number;
		namespace?: number;
		nodes?: string;
		packets?: number;
		path?: string;
		received?: number;
		relative?: boolean;
		reordered?: number;
		delay?: {
			count?: number;
			max_ns?: number;
			mean_ns?: number;
			min_ns?: number;
			sum_ns?: number;
		};
	};
	pdm?: {
		discarded?: number;
		duplicates?: number;
		lost?: number;
		received?: number;
		reordered?: number;
		sent?: number;
		suspicious?: number;
		network?: {
			buckets?: [number, number][];
			count?: number;
			max_ns?: number;
			min_ns?: number;
			p50_ns?: number;
			p90_ns?: number;
			p99_ns?: number;
			sum_ns?: number;
		};
		server?: {
			buckets?: [number, number][];
			count?: number;
			max_ns?: number;
			min_ns?: number;
			p50_ns?: number;
			p90_ns?: number;
			p99_ns?: number;
			sum_ns?: number;
		};
	};
	rtt?: {
		handshake_ns?: number;
		initiator_ns?: number;
		responder_ns?: number;
	};
}
