// Names of numbers that people know.

const protocols: Record<string, string> = { 1: "icmp", 2: "igmp", 6: "tcp", 17: "udp", 47: "gre", 50: "esp", 58: "icmpv6", 89: "ospf", 132: "sctp" };
const ports: Record<string, string> = {
	22: "ssh", 25: "smtp", 53: "dns", 67: "dhcp", 80: "http", 123: "ntp", 143: "imap", 179: "bgp", 389: "ldap", 443: "https", 445: "smb", 514: "syslog",
	853: "dns-tls", 873: "rsync", 993: "imaps", 2049: "nfs", 3306: "mysql", 4739: "ipfix", 5432: "postgresql", 6379: "redis", 6443: "kubernetes",
	8080: "http-alt", 9090: "prometheus", 9092: "kafka", 11211: "memcached", 5201: "iperf3",
};

export const protocol = (n: string) => protocols[n] ?? n;

export function serviceName(proto: string, port: string): string {
	if (!port || port === "0") return protocol(proto);
	return `${protocol(proto)} ${port}${ports[port] ? ` ${ports[port]}` : ""}`;
}

// keyName writes the value of a key for people.
export function keyName(key: string, value: string): string {
	if (key === "proto") return protocol(value);
	if ((key === "dport" || key === "sport") && ports[value]) return `${value} ${ports[value]}`;
	if (value === "") return key === "in" || key === "out" ? "this host" : "–";
	return value;
}
