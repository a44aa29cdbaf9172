package otlp

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"

	"github.com/rolltrace/rolltrace/query/otlpspan"
	"github.com/rolltrace/rolltrace/roll"
)

// decoder reads ExportTraceServiceRequest messages in OTLP/JSON (OTLP specification, "JSON Protobuf Encoding"): ids in
// hex, 64-bit integers as strings or numbers, enums as numbers or names, lowerCamelCase or the original field names,
// unknown fields ignored. It reads tokens, and looks into a span's attributes only when want says so.
type decoder struct {
	// want is asked before the attributes and events are read: the span has no more than what is needed to place and
	// select it. bad says why the span cannot be placed; a kind or status that could not be read is then the one that
	// would matter most, server and error.
	want func(sp *roll.Span, bad error) bool
	// got is handed each span that was wanted and can be placed. It may keep a copy.
	got func(sp *roll.Span)

	dec       jsontext.Decoder
	inner     jsontext.Decoder
	resources map[string]*roll.Resource
	strings   [1 << 12]string // one slot a hash: repeated strings are stored once
	seed      maphash.Seed
	scratch   []byte
	sp        roll.Span // the span being read
}

func newDecoder() *decoder {
	return &decoder{resources: map[string]*roll.Resource{}, seed: maphash.MakeSeed()}
}

// lenient: a repeated name is the last one's, as in ProtoJSON parsers; looking for them costs time.
var lenient = jsontext.AllowDuplicateNames(true)

// line reads one line, which must be one JSON object. One of another OTLP signal, and an empty one, holds no spans.
func (d *decoder) line(b []byte) error {
	d.dec.Reset(bytes.NewBuffer(b), lenient)
	if d.dec.PeekKind() != '{' {
		return kindError(&d.dec, "object")
	}
	found, other := false, false
	err := object(&d.dec, func(name []byte) error {
		switch string(name) {
		case "resourceSpans", "resource_spans":
			found = true
			return array(&d.dec, func() error { return d.resourceSpans(b) })
		case "resourceLogs", "resource_logs", "resourceMetrics", "resource_metrics", "resourceProfiles", "resource_profiles":
			found = true
		default:
			other = true
		}
		return d.dec.SkipValue()
	})
	if err != nil {
		return err
	}
	if _, err := d.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	if other && !found {
		return errors.New("a JSON object without resourceSpans")
	}
	return nil
}

func (d *decoder) resourceSpans(b []byte) error {
	var res *roll.Resource
	var late [][]byte // scopeSpans that came before the resource
	err := object(&d.dec, func(name []byte) error {
		switch string(name) {
		case "resource":
			raw, err := raw(&d.dec, b)
			if err != nil {
				return err
			}
			res, err = d.resource(raw)
			return err
		case "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans":
			if res != nil {
				return d.scopeSpans(b, nil, res)
			}
			raw, err := raw(&d.dec, b)
			late = append(late, raw)
			return err
		}
		return d.dec.SkipValue()
	})
	if err != nil {
		return err
	}
	if res == nil {
		res = &roll.Resource{}
	}
	for _, raw := range late {
		if err := d.scopeSpans(b, raw, res); err != nil {
			return err
		}
	}
	return nil
}

// scopeSpans reads an array of ScopeSpans: from raw, or from the line's decoder when raw is nil.
func (d *decoder) scopeSpans(b, raw []byte, res *roll.Resource) error {
	dec := &d.dec
	if raw != nil {
		b, dec = raw, jsontext.NewDecoder(bytes.NewBuffer(raw), lenient)
	}
	return array(dec, func() error {
		return object(dec, func(name []byte) error {
			if string(name) != "spans" {
				return dec.SkipValue()
			}
			return array(dec, func() error { return d.span(dec, b, res) })
		})
	})
}

func (d *decoder) resource(raw []byte) (*roll.Resource, error) {
	if r, ok := d.resources[string(raw)]; ok {
		return r, nil
	}
	res := &roll.Resource{}
	d.inner.Reset(bytes.NewBuffer(raw), lenient)
	err := object(&d.inner, func(name []byte) (err error) {
		if string(name) != "attributes" {
			return d.inner.SkipValue()
		}
		res.Attributes, err = d.attributes(&d.inner)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(d.resources) >= 1<<14 {
		clear(d.resources)
	}
	d.resources[string(raw)] = res
	return res, nil
}

func (d *decoder) span(dec *jsontext.Decoder, b []byte, res *roll.Resource) error {
	d.sp = roll.Span{Resource: res}
	sp := &d.sp
	var start, end uint64
	var attrs, events []byte
	var hasTrace, hasSpan bool
	var bad error
	spoil := func(err error) {
		if bad == nil {
			bad = err
		}
	}
	err := object(dec, func(name []byte) (err error) {
		switch string(name) {
		case "traceId", "trace_id":
			hasTrace = true
			return d.id(dec, sp.TraceID[:], "trace id", spoil)
		case "spanId", "span_id":
			hasSpan = true
			return d.id(dec, sp.SpanID[:], "span id", spoil)
		case "parentSpanId", "parent_span_id":
			return d.id(dec, sp.ParentID[:], "parent span id", spoil)
		case "name":
			sp.Name, err = d.str(dec)
			return err
		case "kind":
			k, err := d.enum(dec, kindNames, "kind", int64(roll.KindServer), spoil)
			if k >= int64(roll.KindUnspecified) && k <= int64(roll.KindConsumer) {
				sp.Kind = roll.SpanKind(k)
			}
			return err
		case "startTimeUnixNano", "start_time_unix_nano":
			start, err = d.uint64(dec, "start time", spoil)
			return err
		case "endTimeUnixNano", "end_time_unix_nano":
			end, err = d.uint64(dec, "end time", spoil)
			return err
		case "attributes":
			attrs, err = raw(dec, b)
			return err
		case "events":
			events, err = raw(dec, b)
			return err
		case "status":
			return object(dec, func(name []byte) (err error) {
				switch string(name) {
				case "code":
					c, err := d.enum(dec, codeNames, "status code", int64(roll.StatusError), spoil)
					if c < int64(roll.StatusUnset) || c > int64(roll.StatusError) {
						spoil(fmt.Errorf("unknown status code %d", c))
						c = int64(roll.StatusError)
					}
					sp.Status = roll.StatusCode(c)
					return err
				case "message":
					sp.StatusMessage, err = d.str(dec)
					return err
				}
				return dec.SkipValue()
			})
		}
		return dec.SkipValue()
	})
	if err != nil {
		return err
	}
	if !hasTrace || bad == nil && sp.TraceID.IsZero() {
		spoil(errors.New("trace id is zero"))
	}
	if !hasSpan || bad == nil && sp.SpanID.IsZero() {
		spoil(errors.New("span id is zero"))
	}
	if err := otlpspan.Place(sp, start, end); err != nil {
		spoil(err)
	}
	if !d.want(sp, bad) || bad != nil {
		return nil
	}
	if len(attrs) > 2 {
		d.inner.Reset(bytes.NewBuffer(attrs), lenient)
		if sp.Attributes, err = d.attributes(&d.inner); err != nil {
			return err
		}
	}
	if len(events) > 2 {
		d.inner.Reset(bytes.NewBuffer(events), lenient)
		if sp.Events, err = d.events(&d.inner); err != nil {
			return err
		}
	}
	d.got(sp)
	return nil
}

func (d *decoder) events(dec *jsontext.Decoder) (out []roll.SpanEvent, err error) {
	err = array(dec, func() error {
		var e roll.SpanEvent
		err := object(dec, func(name []byte) (err error) {
			switch string(name) {
			case "name":
				e.Name, err = d.str(dec)
			case "timeUnixNano", "time_unix_nano":
				var ns uint64
				ns, err = d.uint64(dec, "event time", func(error) {})
				e.Time = otlpspan.Time(ns)
			case "attributes":
				e.Attributes, err = d.attributes(dec)
			default:
				err = dec.SkipValue()
			}
			return err
		})
		out = append(out, e)
		return err
	})
	otlpspan.SortEvents(out)
	return out, err
}

func (d *decoder) attributes(dec *jsontext.Decoder) (roll.Attributes, error) {
	var buf [16]roll.Attribute
	out := roll.Attributes(buf[:0])
	err := array(dec, func() error {
		var a roll.Attribute
		err := object(dec, func(name []byte) (err error) {
			switch string(name) {
			case "key":
				a.Key, err = d.str(dec)
			case "value":
				a.Value, err = d.value(dec)
			default:
				err = dec.SkipValue()
			}
			return err
		})
		out = append(out, a)
		return err
	})
	if err != nil || len(out) == 0 {
		return nil, err
	}
	out = otlpspan.Unique(out)
	return append(make(roll.Attributes, 0, len(out)), out...), nil
}

// value reads an AnyValue as text.
func (d *decoder) value(dec *jsontext.Decoder) (text string, err error) {
	err = object(dec, func(name []byte) (err error) {
		switch string(name) {
		case "stringValue", "string_value":
			text, err = d.str(dec)
			return err
		case "boolValue", "bool_value":
			switch k := dec.PeekKind(); k {
			case 't', 'f':
				text = "false"
				if k == 't' {
					text = "true"
				}
			case 'n':
			default:
				return kindError(dec, "bool")
			}
			return dec.SkipValue()
		case "intValue", "int_value":
			var n int64
			if n, err = d.int64(dec); err == nil {
				d.scratch = strconv.AppendInt(d.scratch[:0], n, 10)
				text = d.intern(d.scratch)
			}
			return err
		case "doubleValue", "double_value", "bytesValue", "bytes_value",
			"arrayValue", "array_value", "kvlistValue", "kvlist_value":
			v, err := d.any(dec, name, 0)
			if err == nil {
				text = otlpspan.Text(v)
			}
			return err
		}
		return dec.SkipValue()
	})
	return text, err
}

// maxDepth bounds the nesting of attribute values; more is not telemetry.
const maxDepth = 64

// any reads the member name of an AnyValue; nil for an unknown one.
func (d *decoder) any(dec *jsontext.Decoder, name []byte, depth int) (*commonpb.AnyValue, error) {
	if depth > maxDepth {
		return nil, errors.New("attribute value nested too deeply")
	}
	switch string(name) {
	case "stringValue", "string_value":
		s, err := d.str(dec)
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}, err
	case "boolValue", "bool_value":
		t, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		if k := t.Kind(); k != 't' && k != 'f' && k != 'n' {
			return nil, errors.New("want a bool")
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: t.Kind() == 't'}}, nil
	case "intValue", "int_value":
		n, err := d.int64(dec)
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}, err
	case "doubleValue", "double_value":
		s, err := d.number(dec)
		if err != nil {
			return nil, err
		}
		f, err := strconv.ParseFloat(string(s), 64)
		if err != nil && !math.IsInf(f, 0) {
			return nil, fmt.Errorf("read double %q", s)
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: f}}, nil
	case "bytesValue", "bytes_value":
		s, err := d.str(dec)
		if err != nil {
			return nil, err
		}
		p, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return nil, errors.New("read bytes: not base64")
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BytesValue{BytesValue: p}}, nil
	case "arrayValue", "array_value":
		l := &commonpb.ArrayValue{}
		err := values(dec, func() error {
			v, err := d.anyObject(dec, depth+1)
			l.Values = append(l.Values, v)
			return err
		})
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: l}}, err
	case "kvlistValue", "kvlist_value":
		l := &commonpb.KeyValueList{}
		err := values(dec, func() error {
			kv := &commonpb.KeyValue{}
			l.Values = append(l.Values, kv)
			return object(dec, func(name []byte) (err error) {
				switch string(name) {
				case "key":
					kv.Key, err = d.str(dec)
				case "value":
					kv.Value, err = d.anyObject(dec, depth+1)
				default:
					err = dec.SkipValue()
				}
				return err
			})
		})
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: l}}, err
	}
	return nil, dec.SkipValue()
}

func (d *decoder) anyObject(dec *jsontext.Decoder, depth int) (v *commonpb.AnyValue, err error) {
	v = &commonpb.AnyValue{}
	err = object(dec, func(name []byte) error {
		m, err := d.any(dec, name, depth)
		if m != nil {
			v = m
		}
		return err
	})
	return v, err
}

// values reads {"values":[…]}.
func values(dec *jsontext.Decoder, each func() error) error {
	return object(dec, func(name []byte) error {
		if string(name) != "values" {
			return dec.SkipValue()
		}
		return array(dec, each)
	})
}

// object calls member after each name of an object, at its value. The name is valid until the next read. null is
// an empty object.
func object(dec *jsontext.Decoder, member func(name []byte) error) error {
	switch dec.PeekKind() {
	case 'n':
		return dec.SkipValue()
	case '{':
	default:
		return kindError(dec, "object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() == '"' {
		v, err := dec.ReadValue()
		if err != nil {
			return err
		}
		if v = v[1 : len(v)-1]; bytes.IndexByte(v, '\\') >= 0 {
			if v, err = jsontext.AppendUnquote(nil, `"`+string(v)+`"`); err != nil {
				return err
			}
		}
		if err := member(v); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// array calls each at every element of an array. null is an empty array.
func array(dec *jsontext.Decoder, each func() error) error {
	switch dec.PeekKind() {
	case 'n':
		return dec.SkipValue()
	case '[':
	default:
		return kindError(dec, "array")
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for {
		switch dec.PeekKind() {
		case ']', 0:
			_, err := dec.ReadToken()
			return err
		}
		if err := each(); err != nil {
			return err
		}
	}
}

// kindError is the decoder's own error when the JSON is broken here, else says what was wanted.
func kindError(dec *jsontext.Decoder, want string) error {
	t, err := dec.ReadToken()
	if err != nil {
		return err
	}
	return fmt.Errorf("want a JSON %s, got %v", want, t.Kind())
}

// raw reads a value and returns its bytes within b, the input of the decoder.
func raw(dec *jsontext.Decoder, b []byte) ([]byte, error) {
	v, err := dec.ReadValue()
	if err != nil {
		return nil, err
	}
	end := dec.InputOffset()
	return b[end-int64(len(v)) : end], nil
}

// str reads a string; null is "".
func (d *decoder) str(dec *jsontext.Decoder) (string, error) {
	switch dec.PeekKind() {
	case 'n':
		return "", dec.SkipValue()
	case '"':
	default:
		return "", kindError(dec, "string")
	}
	v, err := dec.ReadValue()
	if err != nil {
		return "", err
	}
	return d.unquote(v)
}

func (d *decoder) unquote(v jsontext.Value) (string, error) {
	if bytes.IndexByte(v, '\\') < 0 {
		return d.intern(v[1 : len(v)-1]), nil
	}
	var err error
	if d.scratch, err = jsontext.AppendUnquote(d.scratch[:0], v); err != nil {
		return "", err
	}
	return d.intern(d.scratch), nil
}

// intern returns b as a string, and the same string for the same bytes most of the time.
func (d *decoder) intern(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if len(b) > 128 {
		return string(b)
	}
	slot := &d.strings[maphash.Bytes(d.seed, b)&uint64(len(d.strings)-1)]
	if *slot != string(b) {
		*slot = string(b)
	}
	return *slot
}

// id reads a hex id into dst. A bad one spoils the span, not the line.
func (d *decoder) id(dec *jsontext.Decoder, dst []byte, what string, spoil func(error)) error {
	switch dec.PeekKind() {
	case 'n':
		return dec.SkipValue()
	case '"':
	default:
		return kindError(dec, "string")
	}
	v, err := dec.ReadValue()
	if err != nil {
		return err
	}
	v = v[1 : len(v)-1]
	if len(v) == 0 {
		return nil
	}
	if len(v) != 2*len(dst) {
		spoil(fmt.Errorf("%s of %d characters, want %d of hex", what, len(v), 2*len(dst)))
		return nil
	}
	if _, err := hex.Decode(dst, v); err != nil {
		spoil(fmt.Errorf("%s is not hex", what))
	}
	return nil
}

// number reads a number that may be quoted; null is 0. The bytes are valid until the next read.
func (d *decoder) number(dec *jsontext.Decoder) ([]byte, error) {
	switch dec.PeekKind() {
	case 'n':
		return []byte("0"), dec.SkipValue()
	case '"', '0':
	default:
		return nil, kindError(dec, "number")
	}
	v, err := dec.ReadValue()
	if err != nil || v[0] != '"' {
		return v, err
	}
	return v[1 : len(v)-1], nil
}

func (d *decoder) uint64(dec *jsontext.Decoder, what string, spoil func(error)) (uint64, error) {
	v, err := d.number(dec)
	if err != nil {
		return 0, err
	}
	var n uint64
	for _, c := range v {
		x := uint64(c - '0')
		if x > 9 || n > (math.MaxUint64-x)/10 {
			spoil(fmt.Errorf("%s %.40q is not a whole number of nanoseconds", what, v))
			return 0, nil
		}
		n = n*10 + x
	}
	return n, nil
}

func (d *decoder) int64(dec *jsontext.Decoder) (int64, error) {
	v, err := d.number(dec)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(string(v), 64) // ProtoJSON allows 1e3 and 5.0
		if ferr != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			return 0, fmt.Errorf("read int %.40q", v)
		}
		n = int64(f)
	}
	return n, nil
}

var (
	kindNames = map[string]int64{
		"SPAN_KIND_UNSPECIFIED": 0, "SPAN_KIND_INTERNAL": 1, "SPAN_KIND_SERVER": 2,
		"SPAN_KIND_CLIENT": 3, "SPAN_KIND_PRODUCER": 4, "SPAN_KIND_CONSUMER": 5,
	}
	codeNames = map[string]int64{"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
)

// enum reads an enum's number or name. An unknown name spoils the span and is read as other.
func (d *decoder) enum(
	dec *jsontext.Decoder, names map[string]int64, what string, other int64, spoil func(error),
) (int64, error) {
	if dec.PeekKind() != '"' {
		return d.int64(dec)
	}
	v, err := dec.ReadValue()
	if err != nil {
		return 0, err
	}
	n, ok := names[string(v[1:len(v)-1])]
	if !ok {
		spoil(fmt.Errorf("unknown %s %.40q", what, v[1:len(v)-1]))
		n = other
	}
	return n, nil
}
