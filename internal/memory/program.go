package memory

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ReleaseProgram unmaps the pages of the program's own file until they are needed
// again: much of it runs only at the start. Their content is in the page cache.
func ReleaseProgram() error {
	parts, err := programParts()
	if err != nil {
		return err
	}
	for _, p := range parts {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, p.start, p.length(), unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("releasing the program's pages: %w", errno)
		}
	}
	return nil
}

// part is a mapping of the program's file.
type part struct{ start, end uintptr }

func (p part) length() uintptr { return p.end - p.start }

// programParts are code and constants, as they are in the file.
func programParts() (parts []part, err error) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("finding the program's file: %w", err)
	}
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil, fmt.Errorf("reading the program's mappings: %w", err)
	}
	defer smaps.Close()
	var p part // that is read about; end 0: another mapping
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		field := strings.Fields(lines.Text())
		if len(field) < 3 {
			continue
		}
		if !strings.HasSuffix(field[0], ":") {
			p = part{}
			if strings.HasSuffix(lines.Text(), " "+program) && field[1][1] == '-' { // not writable
				if _, err := fmt.Sscanf(field[0], "%x-%x", &p.start, &p.end); err != nil {
					return nil, fmt.Errorf("reading the program's mappings: %w", err)
				}
			}
		}
		// A changed page, such as one with relocations, is in no file.
		if p.end != 0 && field[0] == "Anonymous:" && field[1] == "0" {
			parts = append(parts, p)
		}
	}
	return parts, nil
}
