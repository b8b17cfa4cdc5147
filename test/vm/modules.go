package vm

import (
	"debug/elf"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// modules are the loadable modules of an unpacked kernel package: where each lies, by name.
type modules map[string]string

// findModules lists the modules under root. Names have "_" where files may have "-", as the kernel has it.
func findModules(root string) (modules, error) {
	found := modules{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok {
			found[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the kernel's modules: %w", err)
	}
	return found, nil
}

// order returns the names with all that they need, each after what it needs. The package has no modules.dep
// (depmod runs when a kernel is installed), so the answer is read where depmod reads it: from the modules.
func (m modules) order(names []string) ([]string, error) {
	var sorted []string
	seen := map[string]bool{}
	var visit func(name string) error
	visit = func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		needs, err := m.needs(name)
		if err != nil {
			return err
		}
		for _, n := range needs {
			if err := visit(n); err != nil {
				return fmt.Errorf("%s needs %w", name, err)
			}
		}
		sorted = append(sorted, name)
		return nil
	}
	for _, name := range names {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return sorted, nil
}

// needs reads "depends=a,b" among the NUL-terminated strings of .modinfo.
func (m modules) needs(name string) ([]string, error) {
	path, ok := m[name]
	if !ok {
		return nil, fmt.Errorf("module %q, which this kernel does not have", name)
	}
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read module %s: %w", path, err)
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("read module %s: it has no .modinfo", path)
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("read .modinfo of %s: %w", path, err)
	}
	for _, field := range strings.Split(string(info), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}
