// Package tap writes the Test Anything Protocol, version 13.
//
// runtime-tools' validation programs import a library of this name that Debian does not have. This is what they call
// of it, and nothing more; hack/conformance puts it where they look.
package tap

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// T counts the tests of one program.
type T struct {
	count  *int
	mark   string
	Writer io.Writer
}

// New starts a program's report on standard output.
func New() *T { return &T{count: new(int), Writer: os.Stdout} }

// Todo is the same report, in which a test is expected to fail.
func (t *T) Todo() *T { return &T{count: t.count, mark: " # TODO", Writer: t.Writer} }

// Header writes the version, and the plan if the number of tests is known.
func (t *T) Header(planned int) {
	fmt.Fprintln(t.Writer, "TAP version 13")
	if planned > 0 {
		fmt.Fprintf(t.Writer, "1..%d\n", planned)
	}
}

// Ok reports one test.
func (t *T) Ok(passed bool, description string) {
	*t.count++
	word := "ok"
	if !passed {
		word = "not ok"
	}
	fmt.Fprintf(t.Writer, "%s %d - %s%s\n", word, *t.count, description, t.mark)
}

// Pass reports a test that passed.
func (t *T) Pass(description string) { t.Ok(true, description) }

// Fail reports a test that failed.
func (t *T) Fail(description string) { t.Ok(false, description) }

// Skip reports that so many tests were not run.
func (t *T) Skip(count int, reason string) {
	for i := 0; i < count; i++ {
		*t.count++
		fmt.Fprintf(t.Writer, "ok %d # SKIP %s\n", *t.count, reason)
	}
}

// Diagnostic writes a remark.
func (t *T) Diagnostic(message string) {
	fmt.Fprintln(t.Writer, "# "+strings.ReplaceAll(message, "\n", "\n# "))
}

// Diagnosticf writes a formatted remark.
func (t *T) Diagnosticf(format string, values ...interface{}) {
	t.Diagnostic(fmt.Sprintf(format, values...))
}

// YAML writes a block of details; JSON is YAML.
func (t *T) YAML(details interface{}) error {
	text, err := json.MarshalIndent(details, "  ", "  ")
	if err == nil {
		fmt.Fprintf(t.Writer, "  ---\n  %s\n  ...\n", text)
	}
	return err
}

// AutoPlan writes the plan after the tests.
func (t *T) AutoPlan() { fmt.Fprintf(t.Writer, "1..%d\n", *t.count) }
