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
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("finding the program's file: %w", err)
	}
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("reading the program's mappings: %w", err)
	}
	defer smaps.Close()
	var start, end uintptr // of the mapping that is read about; end 0: none that is released
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		field := strings.Fields(lines.Text())
		if len(field) < 3 {
			continue
		}
		if !strings.HasSuffix(field[0], ":") {
			start, end = 0, 0
			if strings.HasSuffix(lines.Text(), " "+program) && field[1][1] == '-' { // not writable
				if _, err := fmt.Sscanf(field[0], "%x-%x", &start, &end); err != nil {
					return fmt.Errorf("reading the program's mappings: %w", err)
				}
			}
		}
		// A changed page, such as one with relocations, is in no file.
		if end == 0 || field[0] != "Anonymous:" || field[1] != "0" {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, start, end-start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("releasing the program's pages: %w", errno)
		}
	}
	return nil
}
