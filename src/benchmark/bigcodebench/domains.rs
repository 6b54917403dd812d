//! Domains of BigCodeBench's tasks, by the libraries that they use.
//!
//! Which library belongs to which of the seven domains is published beside the benchmark. PATH-Bench (appendix E) counts one
//! domain a task, that of its primary library, and does not say which one that is: here the domain of most of a task's
//! libraries, the first listed where several have as many. Over all tasks this comes closer to the paper's shares than the
//! domain of the first library or of the last.

/// Domain, and the libraries in it.
const DOMAINS: [(&str, &str); 7] = [
    (
        "Computation",
        "cmath cv2 gensim geopandas IPython keras Levenshtein librosa math nltk numpy obspy pandas \
         pytesseract scipy shapely skimage sklearn soundfile statistics statsmodels sympy tensorflow textblob \
         torch wordninja",
    ),
    (
        "General",
        "argparse array ast bisect builtins collections copy decimal difflib enum faker fnmatch functools \
         heapq importlib inspect itertools multidict natsort operator pkgutil pprint prettytable queue random \
         re regex string texttable textwrap types typing unicodedata uuid warnings",
    ),
    (
        "System",
        "aspose configparser csv ctypes docx docxtpl errno filecmp getpass glob gzip imp io json locale \
         logging multiprocessing openpyxl os pathlib pickle platform psutil select shlex shutil signal \
         sqlalchemy sqlite3 struct subprocess sys tarfile threading xlrd xlwt yaml zipfile zlib",
    ),
    ("Visualization", "folium matplotlib mpl_toolkits PIL seaborn turtle wordcloud"),
    (
        "Network",
        "bs4 cgi chardet django email flask flask_login flask_mail flask_restful flask_wtf ftplib geopy html \
         http ipaddress lxml mechanize mimetypes pyquery python_http_client requests selenium sendgrid \
         smtplib socket ssl urllib werkzeug wikipedia wtforms xml xmltodict",
    ),
    ("Time", "calendar datetime dateutil holidays pytz time"),
    ("Cryptography", "base64 binascii blake3 codecs Crypto cryptography hashlib hmac rsa secrets"),
];

/// The domain of a task by its field `libs`, the text of a Python list of names; `None` where no library is known.
pub fn domain(libs: &str) -> Option<&'static str> {
    let names = libs.split(['\'', '"']).skip(1).step_by(2);
    let found: Vec<&'static str> = names.filter_map(of_library).collect();
    let count = |domain: &str| found.iter().filter(|other| **other == domain).count();
    let most = found.iter().map(|domain| count(domain)).max()?;
    found.iter().copied().find(|domain| count(domain) == most)
}

fn of_library(name: &str) -> Option<&'static str> {
    let holds = |(_, libraries): &&(&str, &str)| libraries.split_whitespace().any(|library| library == name);
    DOMAINS.iter().find(holds).map(|(domain, _)| *domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_belongs_where_most_of_its_libraries_do() {
        assert_eq!(domain("['pandas']"), Some("Computation"));
        assert_eq!(domain("['random', 'itertools', 'math']"), Some("General"));
        assert_eq!(domain("['os', 'hashlib']"), Some("System"), "the first of two");
        assert_eq!(domain("[\"hashlib\", \"os\"]"), Some("Cryptography"));
        assert_eq!(domain("['nobody', 'time']"), Some("Time"));
        assert_eq!((domain("[]"), domain(""), domain("['nobody']")), (None, None, None));
    }

    #[test]
    fn no_library_has_two_domains() {
        let all: Vec<&str> = DOMAINS.iter().flat_map(|(_, libraries)| libraries.split_whitespace()).collect();
        let distinct: std::collections::BTreeSet<&&str> = all.iter().collect();
        assert_eq!((all.len(), distinct.len()), (155, 155));
    }
}
