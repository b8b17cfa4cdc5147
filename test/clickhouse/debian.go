package clickhouse

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/waymark-net/waymark/test/await"
)

// Password is that of the user default of Debian's server.
const Password = "s3cret"

const debianConfig = `<yandex>
<logger><level>warning</level><console>1</console></logger>
<http_port>%d</http_port><listen_host>127.0.0.1</listen_host>
<path>%[2]s/data/</path><tmp_path>%[2]s/tmp/</tmp_path><format_schema_path>%[2]s/schemas/</format_schema_path>
<users_config>%[2]s/users.xml</users_config><default_profile>default</default_profile><default_database>default</default_database>
<mark_cache_size>5368709</mark_cache_size>
</yandex>`

const debianUsers = `<yandex><profiles><default/></profiles><quotas><default/></quotas>
<users><default><password>` + Password + `</password><networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota></default></users>
</yandex>`

// Debian starts Debian's server, 18.16: it has the same HTTP interface, and older types. The test is skipped where it is not installed.
func Debian(t testing.TB) (url string) {
	t.Helper()
	program, err := exec.LookPath("clickhouse-server")
	if err != nil {
		t.Skip("clickhouse-server is not installed: scripts/setup test")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	dir := t.TempDir()
	for name, text := range map[string]string{"config.xml": fmt.Sprintf(debianConfig, port, dir), "users.xml": debianUsers} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--config-file="+filepath.Join(dir, "config.xml"))
	cmd.Dir = dir
	var out await.Text
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	at := fmt.Sprintf("127.0.0.1:%d", port)
	await.Success(t, func() error {
		c, err := net.Dial("tcp", at)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out.String())
		}
		return c.Close()
	})
	return "http://" + at
}
