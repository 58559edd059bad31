/* The process that holds a pod's namespaces open: it does nothing but end when told and reap what
 * is left behind in a pod that shares its process namespace. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) {
	(void)number;
	_exit(0);
}

static void reap(int number) {
	(void)number;
	while (waitpid(-1, 0, WNOHANG) > 0) {
	}
}

int main(void) {
	signal(SIGINT, end);
	signal(SIGTERM, end);
	signal(SIGCHLD, reap);
	for (;;) {
		pause();
	}
}
