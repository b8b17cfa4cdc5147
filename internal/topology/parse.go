package topology

import (
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// parseChanges keeps what concerns links themselves. Bridges send messages of
// the same types in their own family, for ports that join and leave.
func parseChanges(msgs []syscall.NetlinkMessage) []change {
	var changes []change
	for _, m := range msgs {
		if m.Header.Type != unix.RTM_NEWLINK && m.Header.Type != unix.RTM_DELLINK {
			continue
		}
		if len(m.Data) < unix.SizeofIfInfomsg || nl.DeserializeIfInfomsg(m.Data).Family != unix.AF_UNSPEC {
			continue
		}
		header := unix.NlMsghdr(m.Header)
		link, err := netlink.LinkDeserialize(&header, m.Data)
		if err != nil {
			continue
		}
		changes = append(changes, change{link: link, gone: m.Header.Type == unix.RTM_DELLINK})
	}
	return changes
}
