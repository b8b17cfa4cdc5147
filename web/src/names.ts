// Names of numbers that people know.

const protocols: Record<string, string> = { 1: "icmp", 2: "igmp", 6: "tcp", 17: "udp", 47: "gre", 50: "esp", 58: "icmpv6", 89: "ospf", 132: "sctp" };
const ports: Record<string, string> = {
	22: "ssh", 25: "smtp", 53: "dns", 67: "dhcp", 80: "http", 123: "ntp", 143: "imap", 179: "bgp", 389: "ldap", 443: "https", 445: "smb", 514: "syslog",
	853: "dns-tls", 873: "rsync", 993: "imaps", 2049: "nfs", 3306: "mysql", 4739: "ipfix", 5432: "postgresql", 6379: "redis", 6443: "kubernetes",
	8080: "http-alt", 9090: "prometheus", 9092: "kafka", 11211: "memcached", 5201: "iperf3",
};

export const protocol = (n: string) => protocols[n] ?? n;

// Messages of ICMP and ICMPv6 by type; a flow has type and code in place of its destination port.
const messages: Record<string, Record<number, string>> = {
	icmp: { 0: "echo-reply", 3: "unreachable", 5: "redirect", 8: "echo", 11: "time-exceeded" },
	icmpv6: {
		1: "unreachable", 2: "too-big", 3: "time-exceeded", 128: "echo", 129: "echo-reply",
		133: "router-sol", 134: "router-adv", 135: "neigh-sol", 136: "neigh-adv", 143: "mld-report",
	},
};

// message names what ICMP has in place of a port; undefined: the protocol is another one.
function message(proto: string, port: string): string | undefined {
	const names = messages[protocol(proto)];
	return names && (names[Number(port) >> 8] ?? `${Number(port) >> 8}/${Number(port) & 255}`);
}

export function serviceName(proto: string, port: string): string {
	const kind = message(proto, port);
	if (kind) return `${protocol(proto)} ${kind}`;
	if (!port || port === "0") return protocol(proto);
	return `${protocol(proto)} ${port}${ports[port] ? ` ${ports[port]}` : ""}`;
}

// keyNames writes the values of the keys of a group for people.
export function keyNames(by: string[], keys: string[]): string[] {
	const proto = keys[by.indexOf("proto")];
	return keys.map((value, i) => (by[i] === "dport" && proto !== undefined && value !== "" && message(proto, value)) || keyName(by[i]!, value));
}

function keyName(key: string, value: string): string {
	if (key === "proto") return protocol(value);
	if ((key === "dport" || key === "sport") && ports[value]) return `${value} ${ports[value]}`;
	if (value === "") return key === "in" || key === "out" ? "this host" : "–";
	return value;
}
