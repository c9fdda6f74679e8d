/*
 * Runs the task prolog before Pyxis takes a task into its container: slurmstepd can't start it there, as it calls its own
 * program for that, from Slurm 24.11 on. In plugstack.conf before Pyxis, with the program as its only argument.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(task_prolog, 1);

static const char *after(const char *line, const char *word)
{
    size_t length = strlen(word);
    return strncmp(line, word, length) ? NULL : line + length + strspn(line + length, " ");
}

/* What slurmstepd makes of a line of its output. */
static void apply(spank_t spank, char *line)
{
    const char *text;
    char *equals;

    line[strcspn(line, "\n")] = '\0';
    if ((text = after(line, "print "))) {
        dprintf(STDOUT_FILENO, "%s\n", text);
    } else if ((text = after(line, "unset "))) {
        spank_unsetenv(spank, text);
    } else if ((text = after(line, "export ")) && (equals = strchr(text, '='))) {
        *equals = '\0';
        spank_setenv(spank, text, equals + 1, 1);
    }
}

static void start(const char *program, char **environment, int output)
{
    char *const words[] = {(char *)program, NULL};
    int nothing = open("/dev/null", O_RDONLY);

    dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    execve(program, words, environment);
    dprintf(STDERR_FILENO, "%s: %s\n", program, strerror(errno));
    _exit(127);
}

/* As the job's user, just before each task begins. */
int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
    char **environment = NULL, *line = NULL;
    size_t size = 0;
    int both[2], status = 0;
    FILE *output;
    uid_t user;
    pid_t child;

    if (spank_get_item(spank, S_JOB_UID, &user) || user != geteuid() || count != 1) {
        slurm_error("task_prolog: it needs one argument, the program, and the rights of the job's user");
        return -1;
    }
    if (access(arguments[0], X_OK))
        return 0;
    if (spank_get_item(spank, S_JOB_ENV, &environment) || pipe2(both, O_CLOEXEC))
        return -1;
    child = fork();
    if (child == 0)
        start(arguments[0], environment, both[1]);
    close(both[1]);
    if (child < 0 || !(output = fdopen(both[0], "r"))) {
        close(both[0]);
        return -1;
    }
    while (getline(&line, &size, output) > 0)
        apply(spank, line);
    free(line);
    fclose(output);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (status)
        slurm_error("task_prolog: %s ended with status %d", arguments[0], WEXITSTATUS(status));
    return status ? -1 : 0;
}
