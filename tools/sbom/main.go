// Command sbom writes the bill of materials of a Go program, in CycloneDX JSON.
//
// Input: a binary; the linker recorded the modules and their checksums in it. What esbuild recorded of the console that
// the binary embeds, and the console's lock file.
// Output: on stdout, the same bytes for the same binary and SOURCE_DATE_EPOCH.
// scripts/release calls it.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	version := flag.String("version", "", "`version` of the program")
	meta := flag.String("console", "", "`file` in which esbuild recorded what the console is made of")
	web := flag.String("web", "web", "`folder` of the console's sources")
	flag.Parse()
	console, err := consoleParts(*meta, *web)
	if err == nil {
		err = run(os.Stdout, flag.Arg(0), *version, console)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, program, version string, console []cdx.Component) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	bom := describe(info, version, sha256.Sum256(binary), console)
	bom.Metadata.Timestamp = time.Unix(epoch, 0).UTC().Format(time.RFC3339)
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

func describe(info *debug.BuildInfo, version string, sum [sha256.Size]byte, console []cdx.Component) *cdx.BOM {
	bom := cdx.NewBOM()
	bom.SerialNumber = serial(sum)
	self := module(cdx.ComponentTypeApplication, info.Main.Path, version)
	self.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}
	self.Properties = settings(info)
	bom.Metadata = &cdx.Metadata{Component: &self}

	components := []cdx.Component{module(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Version == "(devel)" { // replaced by a directory of this module
			continue
		}
		c := module(cdx.ComponentTypeLibrary, m.Path, m.Version)
		c.Hashes = moduleHash(m.Sum)
		components = append(components, c)
	}
	components = append(components, console...)
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: self.BOMRef, Dependencies: &refs}}
	return bom
}

func module(kind cdx.ComponentType, path, version string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cdx.Component{BOMRef: url, Type: kind, Name: path, Version: version, PackageURL: url}
}

// settings are the build settings that decide what is in the binary.
func settings(info *debug.BuildInfo) *[]cdx.Property {
	var list []cdx.Property
	for _, s := range info.Settings {
		if strings.HasPrefix(s.Key, "GO") || s.Key == "CGO_ENABLED" || s.Key == "vcs.revision" {
			list = append(list, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
		}
	}
	return &list
}

// moduleHash is the checksum of a module's files, as in go.sum.
func moduleHash(sum string) *[]cdx.Hash {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:"))
	if err != nil || len(raw) != sha256.Size {
		return nil
	}
	return &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
}

// serial is a UUID that follows from the binary.
func serial(sum [sha256.Size]byte) string {
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // version 8, RFC 9562
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
