// Package otlpspan turns OTLP spans into roll's: the part of OTLP that every backend shares.
package otlpspan

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/rolltrace/rolltrace/roll"
)

// Each calls yield for every span of rs, all of which share one *roll.Resource. A span that cannot be placed comes with
// an error that says why; what could be read of it is filled in. yield must not keep sp, but may copy *sp.
func Each(rs *tracepb.ResourceSpans, yield func(sp *roll.Span, err error)) {
	res := &roll.Resource{Attributes: Attributes(rs.GetResource().GetAttributes())}
	for _, ss := range rs.GetScopeSpans() {
		for _, s := range ss.GetSpans() {
			sp := roll.Span{
				Kind:          roll.SpanKind(s.GetKind()),
				Status:        roll.StatusCode(s.GetStatus().GetCode()),
				Name:          s.GetName(),
				StatusMessage: s.GetStatus().GetMessage(),
				Resource:      res,
				Attributes:    Attributes(s.GetAttributes()),
			}
			if k := s.GetKind(); k < 0 || k > tracepb.Span_SPAN_KIND_CONSUMER {
				sp.Kind = roll.KindUnspecified
			}
			for _, e := range s.GetEvents() {
				sp.Events = append(sp.Events, roll.SpanEvent{
					Name: e.GetName(), Time: Time(e.GetTimeUnixNano()), Attributes: Attributes(e.GetAttributes()),
				})
			}
			SortEvents(sp.Events)
			err := Place(&sp, s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano())
			err = errors.Join(
				id(sp.TraceID[:], s.GetTraceId(), "trace id", false),
				id(sp.SpanID[:], s.GetSpanId(), "span id", false),
				id(sp.ParentID[:], s.GetParentSpanId(), "parent span id", true),
				err)
			if c := s.GetStatus().GetCode(); c < 0 || c > tracepb.Status_STATUS_CODE_ERROR {
				sp.Status = roll.StatusError // it may be one
				err = errors.Join(err, fmt.Errorf("unknown status code %d", c))
			}
			yield(&sp, err)
		}
	}
}

func id(dst, src []byte, what string, optional bool) error {
	if len(src) == 0 && optional {
		return nil
	}
	if len(src) != len(dst) {
		return fmt.Errorf("%s of %d bytes, want %d", what, len(src), len(dst))
	}
	copy(dst, src)
	if optional {
		return nil
	}
	for _, b := range dst {
		if b != 0 {
			return nil
		}
	}
	return fmt.Errorf("%s is zero", what)
}

// Place sets the span's start and duration from Unix nanoseconds, or says why the span cannot be placed in time. When
// both times are readable but in the wrong order, Start is the earlier and Duration the distance: where to look.
func Place(sp *roll.Span, start, end uint64) error {
	switch {
	case start == 0:
		return errors.New("no start time")
	case start > math.MaxInt64 || end > math.MaxInt64:
		return errors.New("time out of range")
	case end == 0:
		return errors.New("no end time")
	case end < start:
		sp.Start, sp.Duration = Time(end), time.Duration(start-end)
		return fmt.Errorf("ends %s before it starts", sp.Duration)
	}
	sp.Start, sp.Duration = Time(start), time.Duration(end-start)
	return nil
}

// SortEvents orders events by time: stores do not keep the order in which they came.
func SortEvents(events []roll.SpanEvent) {
	if len(events) > 1 {
		slices.SortStableFunc(events, func(a, b roll.SpanEvent) int { return a.Time.Compare(b.Time) })
	}
}

// Time returns the time of Unix nanoseconds, in UTC; zero for 0 and for what int64 cannot hold.
func Time(ns uint64) time.Time {
	if ns == 0 || ns > math.MaxInt64 {
		return time.Time{}
	}
	return time.Unix(0, int64(ns)).UTC()
}

// Attributes returns the attributes as text, the first of each key.
func Attributes(kvs []*commonpb.KeyValue) roll.Attributes {
	if len(kvs) == 0 {
		return nil
	}
	out := make(roll.Attributes, 0, len(kvs))
	for _, kv := range kvs {
		out = append(out, roll.Attribute{Key: kv.GetKey(), Value: Text(kv.GetValue())})
	}
	return Unique(out)
}

// Unique drops, in place, every attribute whose key came before. OTLP forbids repetition; some SDKs do it all the same.
func Unique(as roll.Attributes) roll.Attributes {
	if len(as) > 32 {
		seen := make(map[string]bool, len(as))
		out := as[:0]
		for _, a := range as {
			if !seen[a.Key] {
				seen[a.Key] = true
				out = append(out, a)
			}
		}
		return out
	}
	out := as[:0]
next:
	for _, a := range as {
		for i := range out {
			if out[i].Key == a.Key {
				continue next
			}
		}
		out = append(out, a)
	}
	return out
}

// Text returns the value as [roll.Attribute] wants it: a number in decimal, a bool as true or false, bytes in base64, an
// array or map as JSON, an absent value as "".
func Text(v *commonpb.AnyValue) string {
	switch x := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return x.StringValue
	case *commonpb.AnyValue_BytesValue:
		return base64.StdEncoding.EncodeToString(x.BytesValue)
	case *commonpb.AnyValue_DoubleValue:
		if s, ok := notFinite(x.DoubleValue); ok {
			return s
		}
	case nil:
		return ""
	}
	return string(appendJSON(nil, v))
}

// notFinite returns the ProtoJSON word of a double that JSON has no number for.
func notFinite(f float64) (string, bool) {
	switch {
	case math.IsNaN(f):
		return "NaN", true
	case math.IsInf(f, 1):
		return "Infinity", true
	case math.IsInf(f, -1):
		return "-Infinity", true
	}
	return "", false
}

func appendFloat(b []byte, f float64) []byte {
	if s, ok := notFinite(f); ok {
		return appendString(b, s)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	return strconv.AppendFloat(b, f, 'f', -1, 64)
}

func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // the error is of invalid UTF-8, which it has replaced
	return b
}

func appendJSON(b []byte, v *commonpb.AnyValue) []byte {
	switch x := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return appendString(b, x.StringValue)
	case *commonpb.AnyValue_BoolValue:
		return strconv.AppendBool(b, x.BoolValue)
	case *commonpb.AnyValue_IntValue:
		return strconv.AppendInt(b, x.IntValue, 10)
	case *commonpb.AnyValue_DoubleValue:
		return appendFloat(b, x.DoubleValue)
	case *commonpb.AnyValue_BytesValue:
		return appendString(b, base64.StdEncoding.EncodeToString(x.BytesValue))
	case *commonpb.AnyValue_ArrayValue:
		b = append(b, '[')
		for i, e := range x.ArrayValue.GetValues() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, e)
		}
		return append(b, ']')
	case *commonpb.AnyValue_KvlistValue:
		b = append(b, '{')
		for i, kv := range x.KvlistValue.GetValues() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, kv.GetKey())
			b = append(b, ':')
			b = appendJSON(b, kv.GetValue())
		}
		return append(b, '}')
	default:
		return append(b, "null"...)
	}
}
