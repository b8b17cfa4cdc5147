package topology

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
)

// Inspect looks at one interface of the own namespace, and at the driver of its
// device, which virtual interfaces have none of.
func Inspect(name string) (link Link, driver string, err error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return Link{}, "", fmt.Errorf("looking it up: %w", err)
	}
	if target, err := os.Readlink(filepath.Join("/sys/class/net", name, "device/driver")); err == nil {
		driver = filepath.Base(target)
	}
	return newLink(&space{}, l), driver, nil
}
