/* The process that holds a pod's namespaces: it sleeps, and buries children that lost their parent. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void bury(int signal) {
  (void)signal;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

static void leave(int signal) {
  (void)signal;
  _exit(0);
}

int main(void) {
  struct sigaction on_child = {.sa_handler = bury, .sa_flags = SA_NOCLDSTOP};
  struct sigaction on_end = {.sa_handler = leave};
  if (sigaction(SIGCHLD, &on_child, NULL) || sigaction(SIGTERM, &on_end, NULL) ||
      sigaction(SIGINT, &on_end, NULL)) {
    return EXIT_FAILURE;
  }
  for (;;) {
    pause();
  }
}
