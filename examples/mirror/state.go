package main

import (
	"encoding/json"
	"fmt"
	"maps"
)

// change is one message of the stream. A change without a value removes the key.
type change struct {
	Key   string `json:"key"`
	Value *int64 `json:"value,omitempty"`
}

// state is what the changes fold to. Its JSON form is the snapshot's body.
type state map[string]int64

// apply folds one stored message into the state.
func (s state) apply(message []byte) error {
	var c change
	if err := json.Unmarshal(message, &c); err != nil {
		return fmt.Errorf("message %q: %w", message, err)
	}
	if c.Value == nil {
		delete(s, c.Key)
	} else {
		s[c.Key] = *c.Value
	}
	return nil
}

// restore returns the state a snapshot's body holds; an empty body is the
// empty state.
func restore(snapshot []byte) (state, error) {
	s := state{}
	if len(snapshot) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(snapshot, &s); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return s, nil
}

func (s state) clone() state { return maps.Clone(s) }
