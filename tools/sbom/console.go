package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// consoleParts are the packages of npm that the console in the binary is made of.
//
// Input: what esbuild says it took (meta), and the folder of the console's sources with the lock file.
func consoleParts(meta, web string) ([]cdx.Component, error) {
	var taken struct{ Inputs map[string]any }
	if err := readJSON(meta, &taken); err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct{ Version, Integrity string }
	}
	if err := readJSON(filepath.Join(web, "package-lock.json"), &lock); err != nil {
		return nil, err
	}
	folders := map[string]bool{}
	for file := range taken.Inputs {
		if folder, ok := packageFolder(file); ok {
			folders[folder] = true
		}
	}
	var parts []cdx.Component
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		locked, ok := lock.Packages[folder]
		if !ok {
			return nil, fmt.Errorf("%s is in the console, and not in package-lock.json", folder)
		}
		name := folder[strings.LastIndex(folder, modules)+len(modules):]
		url := "pkg:npm/" + strings.Replace(name, "@", "%40", 1) + "@" + locked.Version
		parts = append(parts, cdx.Component{
			BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: name, Version: locked.Version, PackageURL: url,
			Hashes: integrity(locked.Integrity),
		})
	}
	return parts, nil
}

const modules = "node_modules/"

// packageFolder is that of the innermost package which a file belongs to: a package may bring others.
func packageFolder(file string) (folder string, ok bool) {
	at := strings.LastIndex(file, modules)
	if at < 0 {
		return "", false
	}
	at += len(modules)
	parts := strings.SplitN(file[at:], "/", 3)
	if strings.HasPrefix(parts[0], "@") && len(parts) > 1 {
		return file[:at] + parts[0] + "/" + parts[1], true
	}
	return file[:at] + parts[0], true
}

// integrity is the checksum of a package's archive, as in the lock file.
func integrity(sum string) *[]cdx.Hash {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "sha512-"))
	if err != nil || len(raw) != 64 {
		return nil
	}
	return &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA512, Value: hex.EncodeToString(raw)}}
}

func readJSON(path string, into any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
