package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

// maxFile bounds what is read of a configuration file, in bytes.
const maxFile = 1 << 20

// ErrUnreadable is the beginning of every error about a file that cannot be read.
var ErrUnreadable = errors.New("read configuration")

// Sources are where a configuration comes from; later ones win.
type Sources struct {
	File  string   // path of a YAML file; empty: none
	Env   []string // NAME=value, as os.Environ returns them
	Flags []Flag
}

// Flag is a key that was set on the command line.
type Flag struct {
	Name  string // what the user typed, such as --interface
	Key   string // such as interfaces
	Value string // as a variable would have it
}

// Load reads the configuration. An error is Problems when what was read is
// wrong, and the system's when the file cannot be read.
func Load(src Sources) (Config, Origins, error) {
	c, origins := Default(), Origins{}
	var problems Problems
	if src.File != "" {
		data, err := readFile(src.File)
		if err != nil {
			return c, nil, err
		}
		problems = decodeFile(data, src.File, &c, origins)
	}
	problems = append(problems, setEnv(&c, origins, src.Env)...)
	problems = append(problems, setFlags(&c, origins, src.Flags)...)
	problems = append(problems, problems.apartFrom(checkWhole(&c, origins))...)
	return c, origins, problems.asError()
}

// Parse reads a configuration that Dump wrote.
func Parse(text string) (Config, error) {
	c, origins := Default(), Origins{}
	problems := decodeFile([]byte(text), "configuration", &c, origins)
	return c, problems.asError()
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w; waymark config dump writes a configuration to begin with", ErrUnreadable, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if errors.Is(err, unix.EISDIR) {
		return nil, fmt.Errorf("%w: %w; name the file in it", ErrUnreadable, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%w: %s is larger than %s; is it the right file?", ErrUnreadable, path, formatSize(maxFile))
	}
	return data, nil
}

// decodeFile reads the one YAML document of a file into c.
func decodeFile(data []byte, name string, c *Config, origins Origins) Problems {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil // an empty file sets nothing
	case err != nil:
		return Problems{syntaxProblem(name, data, err)}
	}
	switch err := dec.Decode(&next); {
	case err == nil:
		return Problems{{At: position(name, &next), What: "a second document", Allowed: "a configuration is one document: remove the line ---"}}
	case !errors.Is(err, io.EOF):
		return Problems{syntaxProblem(name, data, err)}
	}
	d := decoder{where: func(n *yaml.Node) string { return position(name, n) }, origins: origins}
	d.mapping(doc.Content[0], reflect.ValueOf(c).Elem(), "")
	return d.problems
}

func position(file string, n *yaml.Node) string {
	return fmt.Sprintf("%s:%d:%d", file, n.Line, n.Column)
}

// yamlError is how the YAML library words a syntax error.
var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

func syntaxProblem(file string, data []byte, err error) Problem {
	what, line := err.Error(), ""
	if m := yamlError.FindStringSubmatch(what); m != nil {
		line, what = m[1], m[2]
	}
	if line == "" { // the first, or the library does not say
		line = strconv.Itoa(1 + bytes.Count(data[:offender(what, data)], []byte("\n")))
	}
	return Problem{
		At: file + ":" + line, What: "not YAML: " + what,
		Allowed: "look for tabs, brackets that stay open and quotes around this line",
	}
}

var unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)

// offender is where an error without a line comes from: an alias of nothing, or
// the first byte that YAML does not take as text; else 0.
func offender(what string, data []byte) int {
	if m := unknownAnchor.FindStringSubmatch(what); m != nil {
		return max(0, bytes.Index(data, []byte("*"+m[1])))
	}
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 || r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f {
			return i
		}
		i += n
	}
	return 0
}
