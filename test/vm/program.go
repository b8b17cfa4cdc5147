package vm

import (
	"os/exec"
	"strings"
	"testing"
)

// Program adds a program of the host to the files of a guest, with the libraries that it is linked with.
func Program(t testing.TB, files map[string]string, name string) {
	t.Helper()
	host, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v; run 'make setup'", err)
	}
	files["/bin/"+name] = host
	out, err := exec.Command("ldd", host).Output()
	if err != nil {
		t.Fatalf("libraries of %s: %v", host, err)
	}
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") { // as "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)" and "/lib64/ld-linux-x86-64.so.2 (0x00007f)"
			files[word] = word
		}
	}
}
