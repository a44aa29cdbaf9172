package report

import (
	"encoding/json"
	"io"

	"github.com/rolltrace/rolltrace/roll"
)

// jsonFormat writes the report as it is, schema [roll.ReportSchema], indented. Lists that are empty are [], not null.
func jsonFormat(w io.Writer, rep *roll.Report) error {
	r := *rep
	r.Rolls = append([]roll.RollReport{}, r.Rolls...)
	for i := range r.Rolls {
		r.Rolls[i].Terminations = append([]roll.Termination{}, r.Rolls[i].Terminations...)
	}
	r.Results = append([]roll.Result{}, r.Results...)
	for i := range r.Results {
		res := &r.Results[i]
		res.Reasons = append([]roll.GapReason{}, res.Reasons...)
		res.Findings = append([]roll.Finding{}, res.Findings...)
		res.Waived = append([]roll.Finding{}, res.Waived...)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(&r)
}
