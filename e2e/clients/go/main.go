// A holder of the lock of github.com/go-zookeeper/zk: takes it as soon as it can, and says whom a
// second connection sees waiting.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
)

var output sync.Mutex

// say prints one line; whole lines also from several goroutines.
func say(event string, fields map[string]any) {
	line := map[string]any{"time": float64(time.Now().UnixMilli()) / 1000, "event": event}
	for key, value := range fields {
		line[key] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		return
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(text))
}

// quiet drops the library's remarks: standard output is for the program's own lines.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

func connect(hosts string, timeout time.Duration) (*zk.Conn, error) {
	servers := strings.Split(hosts, ",")
	dial := net.DialTimeout
	if ca := os.Getenv("CA"); ca != "" {
		secure, err := dialTLS(ca, servers)
		if err != nil {
			return nil, err
		}
		dial = secure
	}
	connection, _, err := zk.Connect(servers, timeout, zk.WithLogger(quiet{}), zk.WithDialer(dial))
	return connection, err
}

// dialTLS connects over TLS to servers that an authority in this file signed for the name of the first
// one: the library resolves names before it dials, and all members present one certificate.
func dialTLS(ca string, servers []string) (zk.Dialer, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", ca)
	}
	host, _, err := net.SplitHostPort(servers[0])
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: roots, ServerName: host}
	if file := os.Getenv("CERTIFICATE"); file != "" {
		certificate, err := tls.LoadX509KeyPair(file, file)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, config)
	}, nil
}

// queue lists the data of the lock's nodes in the order in which the library takes them.
func queue(connection *zk.Conn, path string) ([]string, error) {
	names, _, err := connection.Children(path)
	if err != nil {
		return nil, err
	}
	number := func(name string) int {
		parts := strings.Split(name, "lock-")
		sequence, _ := strconv.Atoi(parts[len(parts)-1])
		return sequence
	}
	sort.Slice(names, func(i, j int) bool { return number(names[i]) < number(names[j]) })
	found := []string{}
	for _, name := range names {
		data, _, err := connection.Get(path + "/" + name)
		if err != nil {
			return nil, err
		}
		found = append(found, string(data))
	}
	return found, nil
}

func main() {
	hosts := flag.String("hosts", "", "host:port, with commas")
	path := flag.String("path", "", "the lock's directory")
	id := flag.String("id", "", "what the lock's node holds")
	timeout := flag.Duration("timeout", 10*time.Second, "session timeout")
	flag.Parse()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	say("started", map[string]any{"pid": os.Getpid(), "id": *id})

	holder, err := connect(*hosts, *timeout)
	if err == nil {
		var observer *zk.Conn
		// A connection of its own: a lock that waits must not be disturbed by the questions.
		if observer, err = connect(*hosts, *timeout); err == nil {
			run(holder, observer, *path, *id, stop)
			observer.Close()
		}
		holder.Close()
	}
	if err != nil {
		say("failed", map[string]any{"error": err.Error()})
		os.Exit(1)
	}
}

// run holds the lock until it is told to stop, and prints a view whenever it changes.
func run(holder, observer *zk.Conn, path, id string, stop <-chan os.Signal) {
	var held atomic.Bool
	go func() {
		// The library gives a request up when no server has taken a connection within a second.
		for {
			lock := zk.NewLock(holder, path, zk.WorldACL(zk.PermAll))
			err := lock.LockWithData([]byte(id))
			if err == nil {
				break
			}
			say("retry", map[string]any{"error": err.Error()})
			time.Sleep(200 * time.Millisecond)
		}
		held.Store(true)
		say("leader", map[string]any{"id": id})
	}()
	var last map[string]any
	for {
		now := map[string]any{}
		if waiting, err := queue(observer, path); err != nil {
			now["error"] = err.Error()
		} else {
			now["queue"], now["hasLeadership"], now["leader"] = waiting, held.Load(), nil
			if len(waiting) > 0 {
				now["leader"] = waiting[0]
			}
		}
		if !reflect.DeepEqual(now, last) {
			say("view", now)
			last = now
		}
		select {
		case <-stop:
			return
		case <-time.After(300 * time.Millisecond):
		}
	}
}
