package headroom

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/topology"
)

// netns identifies a network namespace: names are given to others, and so are
// inode numbers; the cookie never is.
type netns struct {
	Name   string `json:"name,omitempty"`
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
	Cookie uint64 `json:"cookie,omitempty"` // 0: a kernel before 5.14
}

// errNetnsNotFound: the namespace is gone, or has no name and no process that is
// visible here.
var errNetnsNotFound = errors.New("network namespace not found")

// errOther: not the namespace that was meant.
var errOther = errors.New("another network namespace")

// thisNetns is the calling thread's.
func thisNetns(name string) (netns, error) {
	id, err := topology.StatNetns("/proc/thread-self/ns/net")
	if err != nil {
		return netns{}, err
	}
	n := netns{Name: name, Dev: id.Dev, Ino: id.Ino}
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return netns{}, fmt.Errorf("identify network namespace: %w", err)
	}
	defer unix.Close(s)
	if n.Cookie, err = unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err != nil {
		n.Cookie = 0
	}
	return n, nil
}

func (n netns) is(m netns) bool {
	return n.Dev == m.Dev && n.Ino == m.Ino && (n.Cookie == m.Cookie || n.Cookie == 0 || m.Cookie == 0)
}

// in runs f in the namespace, whatever its name is by now.
func (n netns) in(byName func(string, func() error) error, f func() error) error {
	only := func() error {
		now, err := thisNetns(n.Name)
		if err != nil {
			return err
		}
		if !n.is(now) {
			return errOther
		}
		return f()
	}
	ran := false
	err := byName(n.Name, func() error {
		err := only()
		ran = !errors.Is(err, errOther)
		return err
	})
	if ran {
		return err
	}
	ns, err := topology.FindNetns(topology.NetnsID{Dev: n.Dev, Ino: n.Ino})
	if err != nil {
		return errors.Join(errNetnsNotFound, err)
	}
	defer ns.Close()
	if err := ns.Do(only); !errors.Is(err, errOther) {
		return err
	}
	return errNetnsNotFound
}

// place is an interface as it is now.
type place struct {
	Link
	netns netns
	attrs *netlink.LinkAttrs
}

// placeOf looks an interface up in the namespace of the calling thread.
func placeOf(l Link) (place, error) {
	n, err := thisNetns(l.Netns)
	if err != nil {
		return place{}, err
	}
	attrs, err := attrsOf(l.Index)
	if err != nil {
		return place{}, err
	}
	l.Name = attrs.Name
	return place{Link: l, netns: n, attrs: attrs}, nil
}

func attrsOf(index int) (*netlink.LinkAttrs, error) {
	l, err := netlink.LinkByIndex(index)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, fmt.Errorf("interface %d %w", index, errGone)
	}
	if err != nil {
		return nil, fmt.Errorf("look up interface %d: %w", index, err)
	}
	return l.Attrs(), nil
}

// isGone reports whether an interface or a route is not there any more.
func isGone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, errGone)
}

var errGone = errors.New("is gone")
