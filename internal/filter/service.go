package filter

import "strings"

// services are the ports by the names that people type, most of them those of
// IANA (Service Name and Transport Protocol Port Number Registry). They are built
// in so that an expression means the same on every host.
var services = map[string]uint16{
	"echo": 7, "discard": 9, "daytime": 13, "chargen": 19, "ftp-data": 20, "ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25,
	"time": 37, "whois": 43, "tacacs": 49, "domain": 53, "dns": 53, "bootps": 67, "bootpc": 68, "dhcp": 67, "tftp": 69,
	"gopher": 70, "finger": 79, "http": 80, "www": 80, "kerberos": 88, "pop3": 110, "sunrpc": 111, "portmap": 111, "ident": 113,
	"nntp": 119, "ntp": 123, "epmap": 135, "netbios-ns": 137, "netbios-dgm": 138, "netbios-ssn": 139, "imap": 143, "imap2": 143,
	"snmp": 161, "snmptrap": 162, "snmp-trap": 162, "bgp": 179, "irc": 194, "ldap": 389, "https": 443, "microsoft-ds": 445,
	"smb": 445, "kpasswd": 464, "submissions": 465, "smtps": 465, "isakmp": 500, "ike": 500, "exec": 512, "login": 513,
	"shell": 514, "syslog": 514, "printer": 515, "rip": 520, "ripng": 521, "dhcpv6-client": 546, "dhcpv6-server": 547,
	"rtsp": 554, "nntps": 563, "submission": 587, "ipp": 631, "ldaps": 636, "ldp": 646, "rsync": 873, "domain-s": 853,
	"dot": 853, "ftps-data": 989, "ftps": 990, "telnets": 992, "imaps": 993, "pop3s": 995, "socks": 1080, "openvpn": 1194,
	"ms-sql-s": 1433, "mssql": 1433, "ms-sql-m": 1434, "l2tp": 1701, "pptp": 1723, "radius": 1812, "radius-acct": 1813,
	"mqtt": 1883, "nfs": 2049, "cisco-sccp": 2000, "zookeeper": 2181, "etcd-client": 2379, "etcd-server": 2380, "docker": 2375,
	"docker-s": 2376, "iscsi-target": 3260, "mysql": 3306, "ms-wbt-server": 3389, "rdp": 3389, "stun": 3478, "turn": 3478,
	"svn": 3690, "bfd-control": 3784, "epmd": 4369, "ipsec-nat-t": 4500, "ipfix": 4739, "ipfixs": 4740, "vxlan": 4789,
	"sip": 5060, "sips": 5061, "xmpp-client": 5222, "xmpp-server": 5269, "mdns": 5353, "llmnr": 5355, "postgresql": 5432,
	"postgres": 5432, "amqps": 5671, "amqp": 5672, "vnc": 5900, "x11": 6000, "geneve": 6081, "sflow": 6343, "redis": 6379,
	"kube-apiserver": 6443, "syslog-tls": 6514, "http-alt": 8080, "mqtts": 8883, "secure-mqtt": 8883, "https-alt": 8443, "kafka": 9092,
	"git": 9418, "netflow": 2055, "elasticsearch": 9200, "zabbix-agent": 10050, "zabbix-trapper": 10051, "kubelet": 10250,
	"memcached": 11211, "mongodb": 27017, "wireguard": 51820,
}

// Service is the port of a service by a name that is built in.
func Service(name string) (port uint16, ok bool) {
	port, ok = services[strings.ToLower(name)]
	return port, ok
}
