// A resource that refuses the leaders of the past.
//
// Every request carries the fencing token of the leader that sends it. The resource keeps the greatest token that it
// has seen beside its data and refuses smaller ones: a leader that was stopped for a minute and goes on does no harm.
// Token and data are replaced together, so that neither a crash nor a restart forgets the token.
//
//	go run fencing.go FILE
//
// reads requests from the standard input, one a line: TOKEN VALUE
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
)

// Store is one value and the token of the leader that wrote it, in a file.
type Store struct {
	path  string
	lock  sync.Mutex
	token uint64
}

// Open reads what the file has; there may be none yet.
func Open(path string) (*Store, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Store{path: path}, nil
	}
	if err != nil {
		return nil, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	token, err := strconv.ParseUint(first, 10, 63)
	return &Store{path: path, token: token}, err
}

// Write tells the greatest token, and whether the value was written: not with a token that is smaller than one before.
func (s *Store) Write(token uint64, value string) (uint64, bool, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if token < s.token {
		return s.token, false, nil
	}
	file, err := os.Create(s.path + ".new")
	if err != nil {
		return s.token, false, err
	}
	_, err = fmt.Fprintf(file, "%d\n%s", token, value)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return s.token, false, err
	}
	if err := os.Rename(s.path+".new", s.path); err != nil {
		return s.token, false, err
	}
	s.token = token
	return token, true, nil
}

func main() {
	store, err := Open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	requests := bufio.NewScanner(os.Stdin)
	for requests.Scan() {
		word, value, _ := strings.Cut(requests.Text(), " ")
		token, err := strconv.ParseUint(word, 10, 63)
		if err != nil {
			fmt.Println("refused: no token")
			continue
		}
		greatest, written, err := store.Write(token, value)
		switch {
		case err != nil:
			log.Fatal(err)
		case written:
			fmt.Println("written")
		default:
			fmt.Printf("refused: %d is older than %d\n", token, greatest)
		}
	}
}
