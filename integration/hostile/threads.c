/* A process whose first thread ends; another one stays. */
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *stay(void *unused)
{
    for (;;)
        sleep(1);
    return unused;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, stay, NULL) != 0)
        return 1;
    syscall(SYS_exit, 0);
}
