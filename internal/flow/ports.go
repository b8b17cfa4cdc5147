package flow

// Where port ranges begin: IANA's registered ports, and those that Linux gives to
// clients (net.ipv4.ip_local_port_range).
const (
	firstRegistered = 1024
	firstEphemeral  = 32768
)

// services are ports that servers are commonly found on, among others that are as
// low: NFS clients send from below 1024, and 8443 is no client's.
var services = func() (bits [1 << 16 / 64]uint64) {
	for _, p := range []uint16{
		20, 21, 22, 23, 25, 53, 67, 69, 80, 88, 110, 111, 123, 135, 139, 143, 161, 162, 179, 389, 443, 445, 465,
		500, 514, 515, 546, 547, 554, 587, 631, 636, 853, 873, 989, 990, 993, 995,
		1194, 1433, 1521, 1812, 1813, 1883, 2049, 2055, 2181, 2375, 2376, 2379, 2380, 3128, 3260, 3306, 3389, 3478,
		4317, 4318, 4369, 4500, 4739, 4789, 5000, 5060, 5061, 5201, 5353, 5355, 5432, 5671, 5672, 5900, 6081, 6343,
		6379, 6443, 6514, 6653, 8000, 8080, 8081, 8086, 8443, 8472, 8883, 9000, 9042, 9090, 9092, 9093, 9100, 9200,
		9300, 9418, 10250, 11211, 15672, 25565, 27017, 50051, 51820,
	} {
		bits[p/64] |= 1 << (p % 64)
	}
	return bits
}()

// byPorts guesses that the server has the more common port, or else the lower one,
// unless both are such as clients get.
func byPorts(k *Key) verdict {
	if !hasPorts(k.Proto) || k.SrcPort == 0 || k.DstPort == 0 {
		return verdict{}
	}
	src, dst := commonness(k.SrcPort), commonness(k.DstPort)
	switch {
	case src < dst, src == dst && src > 0 && k.SrcPort > k.DstPort:
		return verdict{InitiatorSrc, EvidencePorts}
	case src > dst, src == dst && src > 0 && k.SrcPort < k.DstPort:
		return verdict{InitiatorDst, EvidencePorts}
	}
	return verdict{}
}

// isClear reports whether one port is that of a service, and the other a client's.
func isClear(k *Key) bool {
	src, dst := commonness(k.SrcPort), commonness(k.DstPort)
	return hasPorts(k.Proto) && min(src, dst) == 0 && max(src, dst) >= 2
}

// commonness ranks a port as one of a server.
func commonness(port uint16) int {
	switch {
	case services[port/64]>>(port%64)&1 == 1:
		return 3
	case port < firstRegistered:
		return 2
	case port < firstEphemeral:
		return 1
	}
	return 0
}

// hasPorts: TCP, UDP, DCCP, SCTP and UDP-Lite.
func hasPorts(proto uint8) bool {
	switch proto {
	case protoTCP, protoUDP, 33, 132, 136:
		return true
	}
	return false
}
