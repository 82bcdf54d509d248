// Asks Kubernetes' own packages what they make of an input.
//
// One case per line comes in, the same line with upstream's answer goes out:
//
//	go run . < cases.jsonl > answered.jsonl
//
// A case has an op (decode, strategic, json, merge), a body and, for patches, a patch; decode and strategic also
// name the kind. A case whose answer changes from run to run, because it hangs on the order of a Go map, is
// answered with the error RANDOM.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	unstructuredjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// How often a strategic merge is repeated to see whether its answer is one.
const repetitions = 80

type testCase struct {
	Op         string          `json:"op"`
	APIVersion string          `json:"apiVersion,omitempty"`
	Kind       string          `json:"kind,omitempty"`
	Body       string          `json:"body"`
	Patch      string          `json:"patch,omitempty"`
	Value      json.RawMessage `json:"value,omitempty"`
	Protobuf   []byte          `json:"protobuf,omitempty"`
	Strict     []string        `json:"strict,omitempty"`
	Error      string          `json:"error,omitempty"`
}

type oracle struct {
	kinds  *runtime.Scheme
	strict runtime.Serializer
	wire   runtime.Serializer
}

func main() {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme} {
		if err := add(kinds); err != nil {
			log.Fatal(err)
		}
	}
	o := oracle{
		kinds:  kinds,
		strict: jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, kinds, kinds, jsonserializer.SerializerOptions{Strict: true}),
		wire:   protobuf.NewSerializer(kinds, kinds),
	}
	in := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for {
		line, err := in.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var asked testCase
			if err := json.Unmarshal(line, &asked); err != nil {
				log.Fatal(err)
			}
			if err := out.Encode(o.steady(asked)); err != nil {
				log.Fatal(err)
			}
		}
		if errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			log.Fatal(err)
		}
	}
}

func (o oracle) steady(asked testCase) testCase {
	first := o.answer(asked)
	if asked.Op != "strategic" {
		return first
	}
	for range repetitions {
		again := o.answer(asked)
		if again.Error != first.Error || !bytes.Equal(again.Value, first.Value) {
			first.Value, first.Error = nil, "RANDOM"
			return first
		}
	}
	return first
}

func (o oracle) answer(asked testCase) (answered testCase) {
	answered = asked
	answered.Value, answered.Protobuf, answered.Strict, answered.Error = nil, nil, nil, ""
	defer func() {
		if cause := recover(); cause != nil {
			answered.Error = fmt.Sprint("PANIC ", cause)
		}
	}()
	var err error
	switch asked.Op {
	case "decode":
		err = o.decode(&answered)
	case "strategic":
		err = o.strategic(&answered)
	case "json":
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch([]byte(asked.Patch)); err == nil {
			answered.Value, err = patch.Apply([]byte(asked.Body))
		}
	case "merge":
		answered.Value, err = jsonpatch.MergePatch([]byte(asked.Body), []byte(asked.Patch))
	default:
		log.Fatalf("unknown op %q", asked.Op)
	}
	if err != nil {
		answered.Value = nil
		answered.Error = err.Error()
	}
	return answered
}

// decode reads a body strictly, and answers what comes back from storage.
func (o oracle) decode(c *testCase) error {
	kind := schema.FromAPIVersionAndKind(c.APIVersion, c.Kind)
	object, _, err := o.strict.Decode([]byte(c.Body), &kind, nil)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, each := range strict.Errors() {
			c.Strict = append(c.Strict, each.Error())
		}
	} else if err != nil {
		return err
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	var stored bytes.Buffer
	if err := o.wire.Encode(object, &stored); err != nil {
		return err
	}
	object, _, err = o.wire.Decode(stored.Bytes(), nil, nil)
	if err != nil {
		return err
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	c.Protobuf = stored.Bytes()
	c.Value, err = json.Marshal(object)
	return err
}

func (o oracle) strategic(c *testCase) error {
	object, err := o.kinds.New(schema.FromAPIVersionAndKind(c.APIVersion, c.Kind))
	if err != nil {
		return err
	}
	original, patch := map[string]any{}, map[string]any{}
	if err := unstructuredjson.Unmarshal([]byte(c.Body), &original); err != nil {
		return err
	}
	if err := unstructuredjson.Unmarshal([]byte(c.Patch), &patch); err != nil {
		return err
	}
	patched, err := strategicpatch.StrategicMergeMapPatch(original, patch, object)
	if err != nil {
		return err
	}
	c.Value, err = json.Marshal(patched)
	return err
}
